"""The page of what was learned: a table of runs, and their curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np

from training.local.held_out import HeldOut

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:gray", "tab:brown")
SMOOTHED = 10
"""Steps that a point of a curve is the mean of."""
LAST = 30
"""Steps at the end whose explained variance is told."""
PAGE = """\
# What a tiny model learns: 2048 on {task}

Written by `.venv-train/bin/python -m benchmarks.learning --task {task}`.

A single move of 2048 on a board of {task} with tiles up to 8, from positions in which it matters which way tiles slide:
the share of moves that merge tiles, with 95% intervals, over {answers} held-out positions each. Random moves and the
best constant one reach about a half. Each seed is a tiny Qwen3-VL of its own, made at random, cold-started once, and
trained from there by each algorithm; no setting was chosen with these seeds. *Greedy* takes the likeliest tokens, all
else is sampled at temperature 1. *Blank* and *shuffled*: what the trained model is worth if it sees grey pictures, or
those of other positions. A run named *blank* was trained on grey pictures from the first step on, and is measured on
real ones. *Explained*: the share of the variance of returns that the critic explains, over the last {last} steps.

{table}

![rewards over steps]({picture})

The answers of the cold start are right two times in five and else random, so that its likeliest answers are right
already wherever the board is seen rightly: what rewards teach here is to be sure of them. The likeliest answers hardly
become better; compare the columns *greedy*. Held-out positions are drawn apart from those of training, with other
numbers; a small board has few positions, so that some of them come up in training, too. *Novel boards* leaves these
out: it counts the held-out positions whose picture is not that of any position of the run's steps, nor of the batches
that its cold start may take, all of which follow from the seed and were drawn again. A board that is only turned or
mirrored counts as novel.

Minutes are wall-clock time on two cores, of which a run takes one; other work on the machine makes them longer.
"""
HEAD = (
    "",
    "seed",
    "before",
    "before, greedy",
    "after",
    "after, greedy",
    "after, blank",
    "after, shuffled",
    "after, novel boards",
    "cells seen right",
    "explained",
    "minutes: cold start + RL",
)


@dataclass(frozen=True)
class Trained:
    """One run.

    Attributes:
        run: Its name.
        seed: Its seed.
        cold_minutes: How long the cold start took.
        minutes: How long the rest took.
        before: What the model was worth after the cold start, by name of the look.
        after: Likewise at the end.
        novel: What it is worth at the end on positions that never came up in training; None if all did.
        curve: The numbers of each step.
    """

    run: str
    seed: int
    cold_minutes: float
    minutes: float
    before: dict[str, HeldOut]
    after: dict[str, HeldOut]
    novel: HeldOut | None
    curve: Sequence[dict[str, Any]]


def write_page(folder: Path, task: str, trained: Sequence[Trained]) -> Path:
    """Write the page of a task and its picture; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, page = folder / f"{task}.png", folder / f"{task}.md"
    _draw(trained, picture)
    answers = trained[0].after["sampled"].answers
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|", *map(_line, trained)]
    facts = {"task": task, "answers": answers, "last": LAST, "table": "\n".join(lines), "picture": picture.name}
    page.write_text(PAGE.format(**facts), encoding="utf-8")
    return page


def _line(one: Trained) -> str:
    looks = [one.before["sampled"], one.before["greedy"]]
    looks += [one.after[name] for name in ("sampled", "greedy", "blank", "shuffled")]
    explained = [row["explained"] for row in one.curve[-LAST:] if row.get("explained") is not None]
    cells = [
        one.run,
        str(one.seed),
        *map(_shown, looks),
        "none" if one.novel is None else f"{_shown(one.novel)}, {one.novel.answers} boards",
        f"{one.after['sampled'].perception:.0%}",
        f"{np.mean(explained):.2f}" if explained else "",
        f"{one.cold_minutes:.1f} + {one.minutes:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _shown(found: HeldOut) -> str:
    """Mean and interval."""
    if found.interval is None:
        return f"{found.reward:.2f}"
    return f"{found.reward:.2f} ({found.interval[0]:.2f} to {found.interval[1]:.2f})"


def _draw(trained: Sequence[Trained], path: Path) -> None:
    """Rewards over steps, a line a run, smoothed."""
    figure = matplotlib.figure.Figure(figsize=(7, 4), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    colours = dict(zip(dict.fromkeys(one.run for one in trained), COLOURS))
    named: set[str] = set()
    for one in trained:
        rewards = [row["reward"] for row in one.curve]
        curve = np.convolve(rewards, np.ones(SMOOTHED) / SMOOTHED, mode="valid")
        label = None if one.run in named else one.run
        axes.plot(np.arange(len(curve)) + SMOOTHED, curve, color=colours[one.run], lw=1.8, alpha=0.85, label=label)
        named.add(one.run)
    axes.set_xlabel("step")
    axes.set_ylabel("share of moves that merge")
    axes.set_ylim(0.3, 1.02)
    axes.axhline(0.5, color="black", lw=0.8, ls=":", label="random and best constant move")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(frameon=False, loc="outside upper center", ncols=3)
    figure.savefig(path)
