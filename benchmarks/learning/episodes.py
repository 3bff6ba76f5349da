"""Does a critic help in whole episodes: PPO with lambda 1 and below, with a critic and without.

    .venv-train/bin/python -m benchmarks.learning.episodes

A tiny model plays eight turns of 2048 on a board of 3 x 3 from positions up to 40 moves deep, and earns 1 for each turn
that merges tiles. It is cold-started once for each seed; each variant of PPO goes on from there, at the same positions.
The page docs/learning/episodes.md and its picture are written from the curves of training, whose positions are fresh in
each step.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.core.plots import read_rows
from vlmgym.errors import UsageError
from vlmgym.evaluation.summary import confidence_interval
from vlmgym.options import parse_options, reporting_errors
from vlmgym.terminal import terminal

from .parts import draw_curves, table, with_interval, wrapped
from .running import train

TURNS, EPISODES = 8, 32
SHARED = shlex.split(
    "--preset tiny --set goal=64 --states.moves 0 40 --states.no-informative --rollout.max-tokens 100 "
    f"--play.turns {TURNS} --evaluation.episodes 0 --evaluation.states 0 --rollouts-every 0"
)
PPO = shlex.split(
    f"--cold-start.steps 0 --algorithm ppo --answers {EPISODES} --ppo.gamma 0.9 --ppo.lr 1e-4 --ppo.value-lr 0.1"
)
RUNS: dict[str, list[str]] = {
    "lambda 1": ["--ppo.lam", "1"],
    "lambda 0.7": ["--ppo.lam", "0.7"],
    "lambda 1, no critic": ["--ppo.lam", "1", "--ppo.value", "0"],
    "lambda 0.7, no critic": ["--ppo.lam", "0.7", "--ppo.value", "0"],
}
"""Variants of PPO. A critic that is not trained expects nothing."""
PART = 10
"""Steps that are taken together."""
PAGE = """\
# Whole episodes: what a critic and lambda bring

Written by `.venv-train/bin/python -m benchmarks.learning.episodes {args}`.

A tiny model plays {turns} turns of 2048 on a board of 3 x 3, from positions up to 40 moves deep, and earns 1 for each
turn that merges tiles. {seeds} models were made at random and cold-started; from there each variant of PPO took
{steps} steps of {episodes} episodes, at the same positions. Lambda is that of generalised advantage estimation over
turns, with a gamma of 0.9; *no critic* is one that is never trained, and so expects nothing. The table says what an
episode earned, with 95% intervals over the {part} steps of each column, each of which has fresh positions; *explained*
is the share of the variance of what was earned from a turn on that the critic explained, in the last {part} steps.

{table}

![what an episode earned over steps]({picture})
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train in whole episodes, and write a page."""

    seeds: tuple[int, ...] = (40, 41)
    """Seeds, none of which the settings were chosen with."""
    runs: tuple[str, ...] = tuple(RUNS)
    """Variants."""
    steps: int = 40
    """Steps of each."""
    jobs: int = 2
    """Seeds at once."""
    out: Path = Path("logs/learning")
    """Folder of all runs; those that are finished there are not run again."""
    pages: Path = Path("docs/learning")
    """Folder of the page."""

    def __post_init__(self) -> None:
        if unknown := [run for run in self.runs if run not in RUNS]:
            raise UsageError(f"there is no run {unknown[0]!r}; the runs are {', '.join(RUNS)}")
        if not self.seeds or not self.runs or self.jobs < 1 or self.steps < 3 * PART:
            raise UsageError(f"there is at least one seed, one run and one job, and at least {3 * PART} steps")


@dataclass(frozen=True)
class Trained:
    """One run: its name, its seed, how long it took, and the numbers of each step."""

    run: str
    seed: int
    minutes: float
    curve: Sequence[dict[str, Any]]


def run_seed(options: Options, seed: int) -> list[Trained]:
    """All runs of a seed."""
    cold = options.out / f"episodes-{seed}-cold"
    train(cold, *SHARED, "--seed", str(seed), "--steps", "0")
    trained = []
    for run in options.runs:
        folder = options.out / f"episodes-{seed}-{run.replace(', ', '-').replace(' ', '-')}"
        go_on = [*SHARED, *PPO, *RUNS[run], "--seed", str(seed), "--steps", str(options.steps)]
        minutes = train(folder, *go_on, "--model", str(cold / "model"))
        trained.append(Trained(run, seed, minutes, read_rows(folder / "curve.jsonl")))
    return trained


def write_page(options: Options, trained: Sequence[Trained]) -> Path:
    """Write the page and its picture; the page's path."""
    options.pages.mkdir(parents=True, exist_ok=True)
    picture, page = options.pages / "episodes.png", options.pages / "episodes.md"
    runs = dict.fromkeys(one.run for one in trained)
    earned = {run: [[row["episode_reward"] for row in one.curve] for one in trained if one.run == run] for run in runs}
    curves = [(run, np.mean(of_seeds, axis=0)) for run, of_seeds in earned.items()]
    draw_curves(picture, curves, f"turns that merge, of {TURNS}, mean over seeds")
    middle = options.steps // 2 - PART // 2
    parts = [slice(0, PART), slice(middle, middle + PART), slice(options.steps - PART, options.steps)]
    head = ["", "seed", *(f"steps {part.start + 1} to {part.stop}" for part in parts), "explained", "minutes"]
    text = PAGE.format(
        args=shlex.join(sys.argv[1:]),
        turns=TURNS,
        seeds=len(options.seeds),
        steps=options.steps,
        part=PART,
        episodes=EPISODES,
        table=table(head, (_line(one, parts) for one in trained)),
        picture=picture.name,
    )
    page.write_text(wrapped(text), encoding="utf-8")
    return page


def _line(one: Trained, parts: Sequence[slice]) -> list[str]:
    explained = [row["explained"] for row in one.curve[parts[-1]] if row["explained"] is not None]
    told = f"{np.mean(explained):.2f}" if explained and "no critic" not in one.run else ""
    earned = [[row["episode_reward"] for row in one.curve[part]] for part in parts]
    means = [with_interval(float(np.mean(each)), confidence_interval(each)) for each in earned]
    return [one.run, str(one.seed), *means, told, f"{one.minutes:.1f}"]


def main() -> None:
    """The command line."""
    options = parse_options(Options, None, prog="python -m benchmarks.learning.episodes")
    options = replace(options, out=options.out.resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        trained = [one for found in pool.map(lambda seed: run_seed(options, seed), options.seeds) for one in found]
    terminal().print(f"page    {write_page(options, trained)}", soft_wrap=True)


if __name__ == "__main__":
    with reporting_errors():
        main()
