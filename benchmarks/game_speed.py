"""Measure the speed of every game in the vector runner, relative to 2048, for docs/environments.md.

python -m benchmarks.game_speed

All games are played with random legal actions in one process. Steps include the resets of episodes that have ended.
Games take turns in rounds, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.markdown import table
from benchmarks.protocols import ROOT, write_between
from vlmgym.cli.bench import legal_script, measure, opened, play
from vlmgym.runs.files import replace_file
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.vector import make_vec
from vlmgym.sandbox.options import GameNames
from vlmgym.sandbox.registry import BUILT_IN, make_game
from vlmgym.terminal import parse_options, reporting_errors

REFERENCE, DEALS = "2048", 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure games and write the table."""

    game: GameNames = ()
    """Names of games; the table is then printed instead of written. Default: all built-in games."""
    num_envs: int = 64
    """Number of environments."""
    steps: int = 64
    """Number of different steps per environment; trials repeat them."""
    rounds: int = 3
    """Trials per game."""
    seconds: float = 1.0
    """Length of a trial in seconds."""


def main() -> None:
    """Measure and write the table."""
    with reporting_errors():
        options = parse_options(Options, None, "python -m benchmarks.game_speed")
        names = options.game or tuple(game_id.rpartition("-v")[0] for game_id in BUILT_IN)
        games = {name: make_game(name) for name in dict.fromkeys((REFERENCE, *names))}
        scripts = {name: legal_script(game, options.num_envs, options.steps) for name, game in games.items()}
        makers = {name: partial(make_vec, game, options.num_envs, 0, copy=False) for name, game in games.items()}
        with opened(makers) as envs:
            trials = {name: play(env, scripts[name]) for name, env in envs.items()}
            rates = measure(trials, options.rounds, options.seconds, "steps")
        rows = [
            (name, _digits(rate.median / rates[REFERENCE].median), _digits(1000 * _first_seconds(games[name])))
            for name, rate in sorted(rates.items(), key=lambda item: -item[1].median)
        ]
        text = table(("game", "speed relative to 2048", "new episode (ms)"), rows)
        if options.game:
            print(text)
        else:
            page = ROOT / "docs" / "environments.md"
            lines = text.splitlines()
            replace_file(page, write_between(page.read_text(encoding="utf-8"), "game-speed", lines).encode())


def _digits(number: float) -> str:
    """Format a number with two significant digits, without an exponent."""
    return f"{float(f'{number:.2g}'):g}"


def _first_seconds(game: Game[Any, Any]) -> float:
    """Return the mean time in seconds to start an episode and draw its first images."""
    start = time.perf_counter()
    for seed in range(10_000, 10_000 + DEALS):
        game.images(game.start(np.random.default_rng(seed)))
    return (time.perf_counter() - start) / DEALS


if __name__ == "__main__":
    main()
