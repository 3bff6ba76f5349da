"""How often players that do not look succeed at the stages of the curricula that come along: what their limits rest on.

nice python benchmarks/curricula.py
python benchmarks/curricula.py --curricula 2048 --episodes 50

For each stage that success leads from, whole episodes of random, random-legal and oracle play. The table is that of
`docs/curricula.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Literal

import tyro

from vlmgym.checks import check_int
from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.curriculum import Curriculum
from vlmgym.evaluation import evaluate
from vlmgym.evaluation.statistics import wilson
from vlmgym.workers.pool import ProcessPool

PLAYERS: tuple[Literal["random", "random-legal", "oracle"], ...] = ("random", "random-legal", "oracle")
COSTLY = 10
"""The oracle plays a tenth of the episodes."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play, and print the table in Markdown."""

    curricula: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ("2048", "three-games")
    """Names or files."""
    episodes: int = 500
    """Episodes of random play at each stage; an oracle plays a tenth."""
    max_turns: int = 100
    """Limit of turns."""
    workers: int = 2
    """Worker processes; 0 plays in this one."""

    def __post_init__(self) -> None:
        check_int("episodes", self.episodes, 2 * COSTLY)


def rows(options: Options, workers: ProcessPool) -> Iterator[str]:
    """Lines of the table."""
    yield "| curriculum | stage | player | episodes | score: 5%, median, 95% | success |"
    yield "|---|---|---|---|---|---|"
    for name in options.curricula:
        curriculum = Curriculum.read(Path(name))
        for number, entry in enumerate(curriculum.entries):
            for stage in entry.stages if entry.begins is None else ():
                pick = curriculum.at(number, stage.name)
                for player in PLAYERS:
                    count = options.episodes // (COSTLY if player == "oracle" else 1)
                    records = evaluate(stage.game, player, count, max_turns=options.max_turns, workers=workers)
                    successes = [curriculum.success(pick, record.turns) for record in records]
                    scores = [record.score or 0.0 for record in records]
                    share = sum(successes) / count
                    told = f"{share:.1%}"
                    if stage.at_least is not None:
                        low, high = wilson(round(share * count), count)
                        told += f" ({low:.1%} to {high:.1%})"
                    cuts = quantiles(scores, n=20)
                    spread = f"{cuts[0]:.4g}, {cuts[9]:.4g}, {cuts[-1]:.4g}"
                    yield f"| {name} | {stage.game.name}: {stage.name} | {player} | {count} | {spread} | {told} |"


def main() -> None:
    """Measure and print."""
    with reporting_errors():
        options = parse_options(Options, None, "benchmarks/curricula.py")
        with ProcessPool(options.workers) as workers:
            for line in rows(options, workers):
                print(line, flush=True)


if __name__ == "__main__":
    main()
