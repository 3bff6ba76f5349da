"""Compare PPO on whole episodes with lambda 1 and below, with and without a critic.

    .venv-train/bin/python -m benchmarks.learning.episodes

A tiny model plays four turns of 2048 on a 3 x 3 board, starting from states after at most 8 moves, with a reward of 1
per turn that merges tiles. For each seed, it is trained by SFT once; all variants of PPO continue from this model, with
the same states. Writes docs/learning/episodes.md and its image from the training curves, which use new states in each
step, and from single answers in validation states.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import publish, table
from vlmgym.errors import UsageError
from vlmgym.pages.training import read_curve
from vlmgym.statistics import confidence_interval
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.algorithm import Floats
from vlmgym.training.validation import ValidationResult

from .parts import draw_curves, with_interval
from .running import train

TURNS, EPISODES = 4, 32
SHARED = shlex.split("--preset single_moves --evaluation.episodes 0 --evaluation.states 512 --record-interval 0")
PPO = shlex.split(
    f"--sft.steps 0 --algorithm ppo --batch-size {EPISODES} --max-turns {TURNS} --states.moves 0 8 "
    "--settings ppo.gamma=0.9"
)
# The critic's loss has a small weight: its gradient also changes the policy, which would otherwise forget the format.
RUNS: dict[str, list[str]] = {
    "lambda 1": ["--settings", "ppo.lam=1", "ppo.value_coef=0.01"],
    "lambda 0.5": ["--settings", "ppo.lam=0.5", "ppo.value_coef=0.01"],
    "lambda 1, no critic": ["--settings", "ppo.lam=1", "ppo.value_coef=0"],
    "lambda 0.5, no critic": ["--settings", "ppo.lam=0.5", "ppo.value_coef=0"],
}
"""Variants of PPO. With a value loss weight of 0, the critic is never trained and predicts 0."""
PART = 20
"""Steps per column of the table."""
PAGE = """\
# Whole episodes: critic and lambda

Written by `.venv-train/bin/python -m benchmarks.learning.episodes {args}`.

A tiny model plays {turns} turns of 2048 on a 3 x 3 board, with a reward of 1 per turn that merges tiles. Episodes start
after at most 8 moves, in states where the direction matters. First, {seeds} randomly initialised models were trained by
supervised fine-tuning. Each variant of PPO then trained each of these models for {steps} steps of {episodes} episodes;
all variants saw the same initial states. Lambda is the parameter of generalised advantage estimation over turns; gamma
is 0.9. With *no critic*, the critic is never trained and predicts 0. Settings were chosen with another seed, for which
lambda 0.5 also beat lambda 1.

{table}

| column | meaning |
|---|---|
| steps | mean reward per episode over the {part} steps, each with new states, and its 95% interval |
| difference from {first} | mean over the second half of the steps, in the same initial states, and its 95% interval |
| explained variance | mean explained variance of the critic over the second half of the steps |
| single moves | share of {answers} validation states where the move merges tiles, before and after PPO (95% interval) |

![episode reward over steps]({image})
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train on whole episodes and write a page."""

    seeds: tuple[int, ...] = (42, 43)
    """Training seeds. Settings were chosen with other seeds."""
    runs: tuple[str, ...] = tuple(RUNS)
    """Variants to train."""
    steps: int = 80
    """Steps per variant."""
    jobs: int = 2
    """Seeds to run in parallel."""
    output_dir: Path = Path("logs/learning")
    """Folder of all runs; finished runs are not repeated."""
    pages: Path = Path("docs/learning")
    """Folder of the page."""

    def __post_init__(self) -> None:
        if unknown := [run for run in self.runs if run not in RUNS]:
            raise UsageError(f"unknown run {unknown[0]!r}, choose from: {', '.join(RUNS)}")
        if not self.seeds or not self.runs or self.jobs < 1 or self.steps < 3 * PART:
            raise UsageError(f"seeds, runs and jobs must not be empty or 0, and steps must be at least {3 * PART}")


@dataclass(frozen=True)
class Trained:
    """A run with its duration, its metrics per step, and its validation results before and after PPO."""

    run: str
    seed: int
    minutes: float
    curve: Sequence[dict[str, Any]]
    before: ValidationResult
    after: ValidationResult

    @property
    def earned(self) -> Floats:
        """Mean episode reward of each step, shape (steps,)."""
        return np.array([row["episode_reward"] for row in self.curve])


def run_seed(options: Options, seed: int) -> list[Trained]:
    """Run all variants for a seed."""
    sft = options.output_dir / f"episodes-{seed}-cold"
    train(sft, *SHARED, "--seed", str(seed), "--steps", "0")
    trained = []
    for run in options.runs:
        folder = options.output_dir / f"episodes-{seed}-{run.replace(', ', '-').replace(' ', '-')}"
        rl_args = [*SHARED, *PPO, *RUNS[run], "--seed", str(seed), "--steps", str(options.steps)]
        minutes = train(folder, *rl_args, "--model", str(sft / "model"))
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        before, after = (ValidationResult(**result["validation"][time]["states"]) for time in ("before", "after"))
        trained.append(Trained(run, seed, minutes, read_curve(folder / "curve.jsonl"), before, after))
    return trained


def write_page(options: Options, trained: Sequence[Trained]) -> None:
    """Write the page and its image."""
    image, page = options.pages / "episodes.png", options.pages / "episodes.md"
    runs = dict.fromkeys(result.run for result in trained)
    curves = [(run, np.mean([result.earned for result in trained if result.run == run], axis=0)) for run in runs]
    draw_curves(image, curves, f"turns that merge, of {TURNS}, mean over seeds")
    middle = options.steps // 2 - PART // 2
    parts = [slice(0, PART), slice(middle, middle + PART), slice(options.steps - PART, options.steps)]
    spans = [f"steps {part.start + 1} to {part.stop}" for part in parts]
    head = ["", "seed", *spans, f"difference from {options.runs[0]}", "explained variance", "single moves", "minutes"]
    first = {result.seed: result for result in reversed(trained)}
    text = PAGE.format(
        args=shlex.join(sys.argv[1:]),
        turns=TURNS,
        seeds=len(options.seeds),
        steps=options.steps,
        part=PART,
        episodes=EPISODES,
        first=options.runs[0],
        answers=trained[0].after.responses,
        table=table(head, (_line(result, first[result.seed], parts) for result in trained)),
        image=image.name,
    )
    publish(page, text)


def _line(result: Trained, first: Trained, parts: Sequence[slice]) -> list[str]:
    half = slice(len(result.curve) // 2, None)
    explained = [row["explained_variance"] for row in result.curve[half] if row["explained_variance"] is not None]
    more = (result.earned - first.earned)[half]
    return [
        result.run,
        str(result.seed),
        *(_mean(result.earned[part]) for part in parts),
        "" if result is first else _mean(more),
        f"{np.mean(explained):.2f}" if explained and "no critic" not in result.run else "",
        f"{result.before.reward:.2f} -> {with_interval(result.after.reward, result.after.reward_ci)}",
        f"{result.minutes:.1f}",
    ]


def _mean(numbers: Floats) -> str:
    return with_interval(float(np.mean(numbers)), confidence_interval([*numbers], unit_interval=False))


def main() -> None:
    """Run the benchmark."""
    options = parse_options(Options, None, prog="python -m benchmarks.learning.episodes")
    options = replace(options, output_dir=options.output_dir.resolve())
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        trained = [*chain.from_iterable(pool.map(lambda seed: run_seed(options, seed), options.seeds))]
    write_page(options, trained)


if __name__ == "__main__":
    with reporting_errors():
        main()
