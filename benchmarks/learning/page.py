"""Write the page of a task: a table of runs, and their training curves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import publish, table
from vlmgym.training.validation import ValidationResult

from .parts import draw_curves, with_interval
from .tasks import Task

LAST = 30
"""Number of final steps over which the explained variance is averaged, as docs/learning/index.md says."""
PAGE = """\
# What a tiny model learns: {title}

Written by `.venv-train/bin/python -m benchmarks.learning {args}`.

{question}, with 95% intervals, in {answers} validation states. Without the image, random answers reach {random:.2f} and
the best constant answer {constant:.2f} (computed from the rules; means over the seeds).

{seeds}. The [index](index.md#single-answers) explains the columns.

{table}

![rewards over steps]({image})

{sft_outcome}: compare the columns with and without *greedy*.
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
    "perception accuracy",
    "explained variance",
    "minutes: SFT + RL",
)


@dataclass(frozen=True)
class Trained:
    """Results of one run.

    Attributes:
        run: Algorithm, with ", blank" if trained on grey images.
        seed: Training seed.
        sft_minutes: Duration of SFT.
        minutes: Duration of RL.
        chance: Mean rewards of random answers and of the best constant answer.
        before: Validation results after SFT, by condition.
        after: Validation results after RL, by condition.
        novel: Validation result after RL on states not seen in training; None if all were seen.
        curve: Metrics by step.
    """

    run: str
    seed: int
    sft_minutes: float
    minutes: float
    chance: tuple[float, float]
    before: dict[str, ValidationResult]
    after: dict[str, ValidationResult]
    novel: ValidationResult | None
    curve: Sequence[dict[str, Any]]


def write_page(folder: Path, name: str, task: Task, args: Sequence[str], trained: Sequence[Trained]) -> None:
    """Write the page of a task and its image.

    Args:
        folder: Output folder.
        name: Name of the task.
        task: The task.
        args: Options of the command.
        trained: Results of all runs.
    """
    image, page = folder / f"{name}.png", folder / f"{name}.md"
    random, constant = np.mean(list({result.seed: result.chance for result in trained}.values()), axis=0)
    curves = [(result.run, [row["reward"] for row in result.curve]) for result in trained]
    draw_curves(image, curves, task.reward_label, ("best constant answer", float(constant)))
    text = PAGE.format(
        args=shlex.join(args),
        title=task.title,
        question=task.question,
        answers=trained[0].after["sampled"].responses,
        random=random,
        constant=constant,
        table=table(HEAD, map(_line, trained)),
        image=image.name,
        sft_outcome=task.sft_outcome,
        seeds=task.seeds,
    )
    publish(page, text)


def _line(result: Trained) -> list[str]:
    validations = [result.before["sampled"], result.before["greedy"]]
    validations += [result.after[name] for name in ("sampled", "greedy", "blank", "shuffled")]
    explained = [row["explained_variance"] for row in result.curve[-LAST:] if row.get("explained_variance") is not None]
    return [
        result.run,
        str(result.seed),
        *map(_shown, validations),
        "none" if result.novel is None else f"{_shown(result.novel)}, {result.novel.responses} boards",
        f"{result.after['sampled'].perception:.0%}",
        f"{np.mean(explained):.2f}" if explained else "",
        f"{result.sft_minutes:.1f} + {result.minutes:.1f}",
    ]


def _shown(result: ValidationResult) -> str:
    return with_interval(result.reward, result.reward_ci)
