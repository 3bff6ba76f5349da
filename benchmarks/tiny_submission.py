"""Make the submission of a tiny model to the leaderboard.

    .venv-train/bin/python -m benchmarks.miniature --games 2048 --seeds 0 --runs "G1, GRPO"
    .venv-train/bin/python -m benchmarks.tiny_submission

Continues the training of a tiny model that has learned 2048, with demonstrations on images like the suite's;
then plays the suite and zips the run. The image processor shrinks images to the size that the model was trained on.
The chat template replaces the text of every prompt with the one sentence that the model was trained on, so the model
plays all games as if they were 2048.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.running import train
from vlmgym.benchmark.verify import FILES
from vlmgym.cli.eval import run_evaluation
from vlmgym.evaluation.config import EvalConfig
from vlmgym.policies.transformers import TransformersOptions
from vlmgym.terminal import parse_options, reporting_errors

NAME = "vlmgym-tiny-2048"
SUBMISSION = Path("docs/leaderboard") / f"{NAME}.zip"
PIXELS = 128**2
"""Number of pixels per image that the model was trained on."""
TRAINING = (
    *("--preset", "tiny", "--games", "2048", "--seed", "1000", "--size", "640"),
    *("--config", "theme=light", "similarity=0.1", "--sft.lr", "1e-3", "--sft.steps", "400"),
    *("--steps", "0", "--record-interval", "0", "--evaluation.states", "0", "--evaluation.episodes", "0"),
)
"""Options of training: images as at the suite's level of 2048, and a seed with demonstrations new to the model."""
CHAT_TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- for part in message.content if part.type in ('image', 'image_url') -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
    {%- endfor -%}
    {{- 'Write the board, what merges, and a move.<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Train the tiny model, play a suite, and zip the run."""

    suite: str = "vlmgym-2026.1-lite"
    """Name of the suite."""
    model: Path = Path("logs/miniature/2048-0-g1-grpo/model")
    """Model to continue training."""
    output_dir: Path = Path("logs/tiny_submission")
    """Folder of the training run and of the evaluation."""
    submission: Path = SUBMISSION
    """Zip of the run."""


def submit(config: Config) -> None:
    """Train the model, play the suite, and zip the run."""
    start, trained = config.output_dir / "start", config.output_dir / "training"
    checkpoint, run = config.output_dir / NAME, config.output_dir / "run"
    if not start.exists():
        shutil.copytree(config.model, start)
        (start / "chat_template.jinja").write_text(CHAT_TEMPLATE)
        processor = json.loads((start / "preprocessor_config.json").read_text())
        processor["size"]["longest_edge"] = processor["max_pixels"] = PIXELS
        (start / "preprocessor_config.json").write_text(json.dumps(processor))
    train(trained.resolve(), *TRAINING, "--model", str(start.resolve()))
    shutil.copytree(trained / "model", checkpoint, dirs_exist_ok=True)
    model = TransformersOptions(
        model=str(checkpoint), device="cpu", batch_size=256, max_tokens=120, temperature=1.0, sample_seed=0
    )
    options = EvalConfig(policy="transformers", output_dir=run, videos=0, report=False, concurrency=256)
    run_evaluation((), options, model, suite=config.suite)
    with zipfile.ZipFile(config.submission, "w") as archive:
        for name in FILES:  # with the same date every time
            archive.writestr(zipfile.ZipInfo(name), (run / name).read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    with reporting_errors():
        submit(parse_options(Config, None, "benchmarks.tiny_submission"))
