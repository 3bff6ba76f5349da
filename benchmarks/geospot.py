"""Rewards of geospot a second of processor time, and how long its gazetteer takes to load.

python benchmarks/geospot.py

One process scores answers that name random cities, each against another random city: `score` reads the answer and finds
and compares the names, `score_response` takes a whole response with its perception and form. The first pass meets all
names for the first time; later ones remember them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from vlmgym.errors import UsageError
from vlmgym.options import parse_options, reporting_errors
from vlmgym.sandbox.game import Game
from vlmgym.sandbox.games.geospot import Geospot, GeospotConfig, GeospotState
from vlmgym.sandbox.geo.gazetteer import Gazetteer, gazetteer
from vlmgym.sandbox.reward import score_response


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure and print a table."""

    answers: int = 10_000
    """Answers that are scored in each round."""
    rounds: int = 3
    """Rounds after the first."""

    def __post_init__(self) -> None:
        for name, value in (("answers", self.answers), ("rounds", self.rounds)):
            if value < 1:
                raise UsageError(f"{name} is at least 1, not {value}")


def main() -> None:
    options = parse_options(Options, None, "benchmarks/geospot.py")
    begun = time.process_time()
    Gazetteer()
    loading = time.process_time() - begun
    gazetteer()
    game = Geospot(GeospotConfig.at(reasoning=5))
    rng = np.random.default_rng(0)
    states = [game.generate(rng) for _ in range(options.answers)]
    answers = [game.solution(state) for state in reversed(states)]
    responses = [game.respond(state, answer) for state, answer in zip(states, answers)]

    table = Table(title=f"geospot, one process, {options.answers} answers a round")
    table.add_column("rewards")
    table.add_column("a second", justify="right")
    table.add_row("score, first pass", f"{rate(lambda: score_all(game, states, answers), options):,.0f}")
    for name, work in (
        ("score", lambda: score_all(game, states, answers)),
        ("score_response", lambda: respond_all(game, states, responses)),
    ):
        rates = sorted(rate(work, options) for _ in range(options.rounds))
        table.add_row(name, f"{rates[len(rates) // 2]:,.0f}")
    Console().print(table)
    Console().print(f"the gazetteer loads in {loading:.2f} s")


def rate(work: Callable[[], None], options: Options) -> float:
    begun = time.process_time()
    work()
    return options.answers / (time.process_time() - begun)


def score_all(game: Geospot, states: list[GeospotState], answers: list[str]) -> None:
    for state, answer in zip(states, answers):
        game.score(state, answer)


def respond_all(game: Game[GeospotState, str], states: list[GeospotState], responses: list[str]) -> None:
    rng = np.random.default_rng(0)
    for state, response in zip(states, responses):
        score_response(game, state, response, rng)


if __name__ == "__main__":
    with reporting_errors():
        main()
