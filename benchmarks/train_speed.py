"""Duration of a GRPO step compared with TRL's GRPOTrainer, with the same model, states, groups, lengths and rewards.

    .venv-train/bin/python -m benchmarks.train_speed

Both take turns, score with `vlmgym.sandbox.core.reward` and update once on all responses; TRL samples its own tokens.
All responses have the same length, because the model is untrained and may not stop before the limit.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image
from rich.table import Table
from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from training.core.states import start_rollouts
from training.local.config import TrainConfig
from training.local.options import read_config
from training.local.run import TrainingRun
from training.local.trainer import Trainer
from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.policies.token_sampling import image_token_ids
from vlmgym.sandbox.core.reward import score_response
from vlmgym.terminal import make_console

LIMIT = 0.8
"""Maximum time relative to TRL."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure and print a table."""

    rounds: int = 5
    """Trials per trainer."""
    steps: int = 4
    """Steps per trial; the first is not counted."""
    tokens: int = 52
    """Tokens per response."""

    def __post_init__(self) -> None:
        if self.steps < 2 or self.rounds < 1 or self.tokens < 1:
            raise UsageError("rounds and tokens must be at least 1, and steps at least 2")


class Clock(TrainerCallback):
    """Records wall and CPU seconds of TRL's steps."""

    def __init__(self) -> None:
        self.start = (0.0, 0.0)
        self.steps: list[tuple[float, float]] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Callback of the trainer."""
        self.start = (time.perf_counter(), time.process_time())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Callback of the trainer."""
        self.steps.append((time.perf_counter() - self.start[0], time.process_time() - self.start[1]))


def our_steps(trainer: Trainer, steps: int) -> tuple[list[tuple[float, float]], list[dict[str, float]]]:
    """Return wall and CPU seconds of each step, and its metrics."""
    times, rows = [], []
    for _ in range(steps):
        start = (time.perf_counter(), time.process_time())
        rows.append(trainer.take_step())
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return times, rows


def trl_steps(checkpoint: Path, config: TrainConfig, options: Options, folder: Path) -> list[tuple[float, float]]:
    """Return wall and CPU seconds of TRL's steps on the same states."""
    curriculum = config.make_curriculum()
    rows = range(config.prompts * options.steps)
    picks = curriculum.picks(curriculum.begin(), config.seed, rows)
    episodes = start_rollouts(picks, config.seed, 1, config.play, config.states, config.reward)
    game = curriculum.games[0]
    data = [
        {
            "prompt": [
                {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": episode.observation.prompt}]}
            ],
            "image": Image.fromarray(episode.observation.images[0]),
            "state": episode.live.episode.snapshot().state,
        }
        for episode in episodes
    ]

    def reward(completions: list[Any], state: list[str], **_: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        texts = [text if isinstance(text, str) else text[0]["text"] for text in texts]
        rng = np.random.default_rng(0)
        return [
            score_response(game, game.from_json(before), text, rng, config.reward).total
            for before, text in zip(state, texts, strict=True)
        ]

    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    clock = Clock()
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=config.batch_size,
            num_generations=config.grpo.group_size,
            max_completion_length=options.tokens,
            max_steps=options.steps,
            learning_rate=config.update.lr,
            generation_kwargs={
                "min_new_tokens": options.tokens,
                "suppress_tokens": image_token_ids(model.config),
                "top_k": 0,
            },
            beta=0.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=config.seed,
        ),
        train_dataset=Dataset.from_list(data),
        processing_class=AutoProcessor.from_pretrained(checkpoint),
        callbacks=[clock],
    )
    trainer.train()
    return clock.steps


def main() -> None:
    """Run the benchmark."""
    options = parse_options(Options, None, prog="python -m benchmarks.train_speed")
    folder = Path(tempfile.mkdtemp())
    try:
        args = ["--preset", "single_moves", "--record-interval", "0", "--output-dir", str(folder / "ours")]
        args += ["--rollout.max-tokens", str(options.tokens)]
        config = read_config(args)
        run = TrainingRun.begin(config, args)
        trainer = Trainer(config, run)
        trainer.actor.ends = set()  # as with TRL, no response ends before the limit
        ours: list[tuple[float, float]] = []
        trl: list[tuple[float, float]] = []
        rows: list[dict[str, float]] = []
        for _ in range(options.rounds):
            times, found = our_steps(trainer, options.steps)
            ours += times[1:]
            rows += found[1:]
            trl += trl_steps(run.tiny, config, options, folder / "trl")[1:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_tables(ours, trl, rows, options.tokens)


def print_tables(
    ours: list[tuple[float, float]], trl: list[tuple[float, float]], rows: list[dict[str, float]], tokens: int
) -> None:
    """Print the time of a step and its parts."""
    lengths = {row["response_tokens"] for row in rows}
    if lengths != {float(tokens)}:
        raise UsageError(f"responses have {lengths} tokens instead of {tokens}, so the times are not comparable")
    table = Table(title="one step of 8 states x 8 responses")
    for column in ("", "seconds: median", "fastest to slowest", "CPU seconds: median"):
        table.add_column(column)
    for name, times in (("vlmgym", ours), ("TRL's GRPOTrainer", trl)):
        wall, cpu = zip(*times)
        table.add_row(name, f"{np.median(wall):.2f}", f"{min(wall):.2f} to {max(wall):.2f}", f"{np.median(cpu):.2f}")
    console = make_console()
    console.print(table)
    ratio, cpu_ratio = (float(np.median([t[i] for t in ours]) / np.median([t[i] for t in trl])) for i in (0, 1))
    reached = "reached" if ratio <= LIMIT else "not reached"
    console.print(f"ratio {ratio:.2f} (goal {LIMIT}: {reached}), CPU time {cpu_ratio:.2f}")
    parts = {
        "states and images": "seconds_states",
        "encoding and generation": "seconds_generation",
        "scoring": "seconds_scoring",
        "advantages": "seconds_advantages",
        "update": "seconds_update",
    }
    total = np.median([row["seconds"] for row in rows])
    shares = {name: float(np.median([row[key] for row in rows]) / total) for name, key in parts.items()}
    console.print(json.dumps({name: round(share, 3) for name, share in shares.items()}))


if __name__ == "__main__":
    with reporting_errors():
        main()
