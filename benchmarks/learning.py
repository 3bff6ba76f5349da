"""Is it learned, and is it the eye that learns: fresh seeds, before and after, with controls.

    .venv-train/bin/python -m benchmarks.learning                    # 3 seeds, GRPO and PPO, 3x3: about 30 minutes
    .venv-train/bin/python -m benchmarks.learning --board 4 --seeds 10 11 12

For each seed a tiny model is made and cold-started once; each algorithm goes on from there. All that is measured is
measured on held-out positions, sampled at temperature 1 and with the likeliest tokens (greedy). Controls: the trained
model sees grey pictures, or those of other positions; and a model that is trained on grey pictures by the same
commands.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib.figure
import numpy as np
import torch
from rich.table import Table

from training.core.plots import read_rows
from training.local.actor import Actor
from training.local.config import read_config
from training.local.held_out import Eye, HeldOut, answer_held_out
from vlmgym.errors import UsageError
from vlmgym.options import parse_options, reporting_errors
from vlmgym.terminal import terminal

ROOT = Path(__file__).parents[1]
Algorithm = Literal["grpo", "ppo"]
LOOKS: tuple[tuple[str, Eye, float], ...] = (
    ("sampled", "open", 1.0),
    ("greedy", "open", 0.0),
    ("blank", "blank", 1.0),
    ("shuffled", "shuffled", 1.0),
)
"""Name, what the model sees, temperature."""
COLOURS = {"grpo": "tab:blue", "ppo": "tab:orange", "grpo, blank": "tab:gray", "ppo, blank": "tab:brown"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, measure and print a table."""

    seeds: tuple[int, ...] = (10, 11, 12)
    """Seeds, none of which the settings were chosen with."""
    algorithms: tuple[Algorithm, ...] = ("grpo", "ppo")
    """What is compared."""
    board: Literal[3, 4] = 3
    """Rows and columns."""
    blank: int = 1
    """Seeds, the first ones, for which a model is trained on grey pictures, too."""
    answers: int = 512
    """Held-out positions of each measurement."""
    jobs: int = 2
    """Seeds at once."""
    out: Path = Path("logs/learning")
    """Folder of all runs; those that are finished there are not run again."""
    options: tuple[str, ...] = ()
    """Further options of every run, for instance --steps 300."""

    def __post_init__(self) -> None:
        if min(self.jobs, self.answers) < 1 or not self.seeds or not self.algorithms:
            raise UsageError("there is at least one seed, one algorithm, one job and one answer")


def train(folder: Path, *args: str) -> float:
    """Run a training to its end, unless that was done; the minutes it took."""
    took = folder / "minutes"
    if not took.exists():
        begun = time.perf_counter()
        known = ["--resume", str(folder)] if (folder / "options.json").exists() else [*args, "--out", str(folder)]
        command = [sys.executable, "-m", "training.local.train", *known]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")
        took.write_text(str((time.perf_counter() - begun) / 60))
    return float(took.read_text())


def measure(model: Path, args: Sequence[str], answers: int) -> dict[str, HeldOut]:
    """What a saved model is worth, by name of the look."""
    config = read_config(args)
    curriculum = config.make_curriculum()
    actor = Actor(model, config.model)
    place = (actor, config, curriculum, curriculum.begin())
    return {name: answer_held_out(*place, eye, temperature, answers) for name, eye, temperature in LOOKS}


def board_options(board: int) -> list[str]:
    """What differs from the preset `tiny`, which is a board of 3 x 3."""
    if board == 3:
        return []
    return ["--set", "rows=4", "columns=4", "--size", "128", "--states.moves", "0", "40", "--rollout.max-tokens", "120"]


def run_seed(options: Options, seed: int) -> list[dict[str, Any]]:
    """All runs of a seed: a row each."""
    shared = ["--preset", "tiny", "--seed", str(seed), "--evaluation.episodes", "0", "--evaluation.states", "0"]
    shared += ["--rollouts-every", "0", *board_options(options.board), *options.options]
    rows = []
    blind = [False, True] if seed in options.seeds[: options.blank] else [False]
    for blank in blind:
        name = f"{options.board}x{options.board}-{seed}{'-blank' if blank else ''}"
        grey = ["--blank"] if blank else []
        cold = options.out / f"{name}-cold"
        minutes = train(cold, *shared, *grey, "--steps", "0")
        before = measure(cold / "model", shared, options.answers)
        for algorithm in options.algorithms[:1] if blank else options.algorithms:
            folder = options.out / f"{name}-{algorithm}"
            go_on = ["--cold-start.steps", "0", "--model", str(cold / "model"), "--algorithm", algorithm]
            more = train(folder, *shared, *grey, *go_on)
            rows.append(
                {
                    "what": f"{algorithm}, blank" if blank else algorithm,
                    "seed": seed,
                    "cold": minutes,
                    "minutes": more,
                    "before": before,
                    "after": measure(folder / "model", shared, options.answers),
                    "curve": [row["reward"] for row in read_rows(folder / "curve.jsonl")],
                    "explained": [row.get("explained") for row in read_rows(folder / "curve.jsonl")],
                }
            )
    return rows


def shown(found: HeldOut) -> str:
    """Mean and interval."""
    if found.interval is None:
        return f"{found.reward:.2f}"
    return f"{found.reward:.2f} ({found.interval[0]:.2f} to {found.interval[1]:.2f})"


def table_of(rows: Sequence[dict[str, Any]], title: str) -> Table:
    """A line a run."""
    table = Table(title=title)
    head = ["", "seed", "before", "before, greedy", "after", "after, greedy", "after, blank", "after, shuffled"]
    for column in [*head, "cells right", "minutes, cold start + RL"]:
        table.add_column(column)
    for row in rows:
        before, after = row["before"], row["after"]
        looks = [shown(after[name]) for name in ("sampled", "greedy", "blank", "shuffled")]
        seen = f"{after['sampled'].perception:.0%}"
        minutes = f"{row['cold']:.1f} + {row['minutes']:.1f}"
        cells = [
            row["what"],
            str(row["seed"]),
            shown(before["sampled"]),
            shown(before["greedy"]),
            *looks,
            seen,
            minutes,
        ]
        table.add_row(*cells)
    return table


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Rewards over steps, a line a run, smoothed over 10 steps."""
    figure = matplotlib.figure.Figure(figsize=(7, 4), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    named: set[str] = set()
    for row in rows:
        curve = np.convolve(row["curve"], np.ones(10) / 10, mode="valid")
        label = None if row["what"] in named else row["what"]
        axes.plot(np.arange(len(curve)) + 10, curve, color=COLOURS[row["what"]], lw=1.8, alpha=0.85, label=label)
        named.add(row["what"])
    axes.set_xlabel("step")
    axes.set_ylabel("share of moves that merge")
    axes.set_ylim(0.3, 1.02)
    axes.axhline(0.5, color="black", lw=0.8, ls=":", label="random and best constant move")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path)


def main() -> None:
    """The command line."""
    options = parse_options(Options, None, prog="python -m benchmarks.learning")
    torch.set_num_threads(1)
    options = replace(options, out=options.out.resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [row for rows in pool.map(lambda seed: run_seed(options, seed), options.seeds) for row in rows]
    terminal().print(table_of(rows, f"share of moves that merge, 2048 on {options.board} x {options.board}"))
    plain = [
        {**row, **{when: {n: f.plain() for n, f in row[when].items()} for when in ("before", "after")}} for row in rows
    ]
    (options.out / f"learning_{options.board}x{options.board}.json").write_text(json.dumps(plain, indent=1))
    draw(rows, options.out / f"learning_{options.board}x{options.board}.png")


if __name__ == "__main__":
    with reporting_errors():
        main()
