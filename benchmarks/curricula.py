"""Measure the success rates of policies that need no model at the stages of curricula.

nice python -m benchmarks.curricula
python -m benchmarks.curricula --curricula 2048 --episodes 50

Plays whole episodes with the policies random, random-legal and oracle at every stage of games that advance by success.
The thresholds of the built-in curricula and the table in `docs/curricula.md` are based on the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Literal

import tyro

from vlmgym.checks import check_int
from vlmgym.curriculum import Curriculum
from vlmgym.evaluation import evaluate
from vlmgym.statistics import wilson
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.workers.pool import ProcessPool

POLICIES: tuple[Literal["random", "random-legal", "oracle"], ...] = ("random", "random-legal", "oracle")
ORACLE_SHARE = 10
"""The oracle plays one in this many episodes, because it is slow."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play episodes and print a Markdown table."""

    curricula: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ("2048", "three-games")
    """Names or files of curricula."""
    episodes: int = 500
    """Episodes per policy and stage. The oracle plays a tenth of them."""
    max_turns: int = 100
    """Maximum number of turns per episode."""
    workers: int = 2
    """Number of worker processes; 0 plays in this process."""

    def __post_init__(self) -> None:
        check_int("episodes", self.episodes, 2 * ORACLE_SHARE)


def rows(options: Options, workers: ProcessPool) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| curriculum | stage | policy | episodes | score: 5%, median, 95% | success |"
    yield "|---|---|---|---|---|---|"
    for name in options.curricula:
        curriculum = Curriculum.read(Path(name))
        for number, entry in enumerate(curriculum.entries):
            for stage in entry.stages if entry.begins is None else ():
                pick = curriculum.at(number, stage.name)
                for policy in POLICIES:
                    count = options.episodes // (ORACLE_SHARE if policy == "oracle" else 1)
                    records = evaluate(stage.game, policy, count, max_turns=options.max_turns, workers=workers)
                    successes = [curriculum.success(pick, record.turns) for record in records]
                    scores = [record.score or 0.0 for record in records]
                    share = sum(successes) / count
                    rate = f"{share:.1%}"
                    if stage.at_least is not None:
                        low, high = wilson(round(share * count), count)
                        rate += f" ({low:.1%} to {high:.1%})"
                    cuts = quantiles(scores, n=20)
                    spread = f"{cuts[0]:.4g}, {cuts[9]:.4g}, {cuts[-1]:.4g}"
                    yield f"| {name} | {stage.game.name}: {stage.name} | {policy} | {count} | {spread} | {rate} |"


def main() -> None:
    """Run the benchmark."""
    with reporting_errors():
        options = parse_options(Options, None, "python -m benchmarks.curricula")
        with ProcessPool(options.workers) as workers:
            for line in rows(options, workers):
                print(line, flush=True)


if __name__ == "__main__":
    main()
