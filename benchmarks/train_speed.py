"""Measure the duration of a GRPO step in one and two processes, compared with TRL's GRPOTrainer, and peak memory.

    .venv-train/bin/python -m benchmarks.train_speed

All candidates have the same model, states, groups and response lengths, score with `vlmgym.sandbox.core.reward`, and
update once on all responses of a step; TRL samples its own tokens. All responses have the maximum length, because the
model is untrained and must not stop earlier. Candidates take turns. Peak memory is VmHWM, summed over the processes of
a short training run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from datasets import Dataset
from PIL import Image
from rich.table import Table
from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.reward import score_response
from vlmgym.terminal import make_console, parse_options, reporting_errors
from vlmgym.training.config import TrainConfig, read_config
from vlmgym.training.engine.encoding import Encoder
from vlmgym.training.engine.processes import Processes
from vlmgym.training.run import TrainingRun
from vlmgym.training.states import start_rollouts
from vlmgym.training.trainer import Trainer

LIMIT = 0.4
"""Goal: maximum time of a step with one process, relative to TRL."""
OURS = ("vlmgym, 1 process", "vlmgym, 2 processes")
TRL = "TRL's GRPOTrainer"
SECONDS = list[tuple[float, float]]
"""Wall-clock and CPU seconds of each step."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the duration and memory of training steps, and print tables."""

    rounds: int = 5
    """Trials per trainer."""
    steps: int = 4
    """Steps per trial. The first one is not counted."""
    tokens: int = 52
    """Tokens per response."""
    states: int = 8
    """States per step, with 8 responses each."""

    def __post_init__(self) -> None:
        if min(self.steps, self.states) < 2 or min(self.rounds, self.tokens) < 1:
            raise UsageError("rounds and tokens must be at least 1, and steps and states at least 2")


class Clock(TrainerCallback):
    """Records the wall-clock and CPU seconds of TRL's steps."""

    def __init__(self) -> None:
        self.start = (0.0, 0.0)
        self.steps: SECONDS = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Note the time at which a step begins; the trainer calls this."""
        self.start = (time.perf_counter(), cpu_seconds())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Record the seconds of a step; the trainer calls this."""
        self.steps.append((time.perf_counter() - self.start[0], cpu_seconds() - self.start[1]))


def cpu_seconds() -> float:
    """Return the total CPU seconds of this process and its children."""
    times = [child.cpu_times() for child in psutil.Process().children()]
    return float(time.process_time() + sum(child_times.user + child_times.system for child_times in times))


def make_trainer(*args: Any, **options: Any) -> Trainer:
    """Create a trainer whose responses never end before the token limit, as with TRL here."""
    trainer = Trainer(*args, **options)
    trainer.actor.ends = set()
    return trainer


def our_steps(config: TrainConfig, run: TrainingRun, steps: int) -> tuple[SECONDS, list[dict[str, float]]]:
    """Take training steps with vlmgym; return their times and metrics."""
    times, rows, processes = [], [], Processes(size=config.num_processes)
    trainer = make_trainer(config, run, processes=processes)
    with processes.running(partial(make_trainer, config, run, trainer.curriculum)):
        for _ in range(steps):
            start = (time.perf_counter(), cpu_seconds())
            rows.append(trainer.take_step())
            times.append((time.perf_counter() - start[0], cpu_seconds() - start[1]))
    return times, rows


def peak_memory(args: list[str], processes: int, folder: Path) -> float:
    """Return the peak memory of a training run in GB, summed over its processes."""
    args = [*args, "--sft.steps", "20", "--settings", "sft.gate=0", "--steps", "3", "--evaluation.episodes", "0"]
    args += ["--processes", str(processes), "--output-dir", str(folder)]
    command = [sys.executable, "-m", "vlmgym", "train", *args]
    peaks: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        while training.poll() is None:
            with suppress(psutil.NoSuchProcess, FileNotFoundError):
                process = psutil.Process(training.pid)
                for child in (process, *process.children(recursive=True)):
                    status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
                    sizes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
                    peaks[child.pid] = max([peaks.get(child.pid, 0), *sizes])
            time.sleep(0.05)
    if training.returncode:
        raise UsageError(f"the training run failed: {' '.join(command)}")
    return sum(peaks.values()) * 1024 / 1e9


def trl_steps(checkpoint: Path, config: TrainConfig, options: Options, folder: Path) -> SECONDS:
    """Take training steps with TRL on the same states; return their times."""
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
            "state": episode.episode.snapshot().state,
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
                "suppress_tokens": Encoder(checkpoint).family.suppressed(),
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
        args = ["--preset", "single_moves", "--rollout.max-tokens", str(options.tokens)]
        args += ["--batch-size", str(8 * options.states)]
        quiet = [*args, "--record-interval", "0", "--output-dir", str(folder / "ours")]
        config = read_config([*quiet, "--processes", "1"])
        run = TrainingRun.new(config)
        run.folder.mkdir()
        run.begin(config)
        times: dict[str, SECONDS] = {name: [] for name in (*OURS, TRL)}
        rows: list[dict[str, float]] = []
        for _ in range(options.rounds):
            for count, name in enumerate(OURS, 1):
                step_times, step_metrics = our_steps(replace(config, processes=count), run, options.steps)
                times[name] += step_times[1:]
                rows += step_metrics[1:] if count == 1 else []
            times[TRL] += trl_steps(run.tiny, config, options, folder / "trl")[1:]
        memory = {name: peak_memory(args, count, folder / str(count)) for count, name in enumerate(OURS, 1)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_tables(times, memory, rows, options)


def print_tables(
    times: dict[str, SECONDS], memory: dict[str, float], rows: list[dict[str, float]], options: Options
) -> None:
    """Print step times compared with TRL, the share of each part of a step in one process, and peak memory."""
    lengths = {row["response_tokens"] for row in rows}
    if lengths != {float(options.tokens)}:
        raise UsageError(
            f"responses have {lengths} tokens instead of {options.tokens}, so the times are not comparable"
        )
    table = Table(title=f"one step of {options.states} states x 8 responses")
    for column in ("", "seconds: median", "fastest to slowest", "CPU seconds: median", "GB"):
        table.add_column(column)
    medians = {name: tuple(float(np.median(column)) for column in zip(*steps)) for name, steps in times.items()}
    for name, steps in times.items():
        wall, cpu = medians[name]
        slowest, fastest = max(steps)[0], min(steps)[0]
        gigabytes = f"{memory[name]:.1f}" if name in memory else ""
        table.add_row(name, f"{wall:.2f}", f"{fastest:.2f} to {slowest:.2f}", f"{cpu:.2f}", gigabytes)
    console = make_console()
    console.print(table)
    (wall, cpu), (two, _), (trl_wall, trl_cpu) = medians.values()
    reached = "reached" if wall / trl_wall <= LIMIT else "not reached"
    console.print(f"1 process / TRL: {wall / trl_wall:.2f} (goal {LIMIT}: {reached}), CPU time {cpu / trl_cpu:.2f}")
    console.print(f"2 processes are {wall / two:.2f} times as fast as 1")
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
