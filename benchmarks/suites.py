"""Freeze a suite: hashes of its games, and baselines of the random policy and the oracle on its seeds.

python -m benchmarks.suites vlmgym-2026.1-lite --description "..." --episodes 20 --max-turns 25

A published suite never changes: after any change of images, prompts, rules or seeds, freeze a new version.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated

import tyro

from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.evaluation.suite import FOLDER, Suite, SuiteGame, behaviour_hash, suite_names
from vlmgym.records.files import replace_file
from vlmgym.sandbox.registry import BUILT_IN, make_game
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class FreezeConfig:
    """Freeze a suite of all built-in games."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Name with a version, such as vlmgym-2026.1-lite."""
    description: str
    """Purpose and cost, in a sentence."""
    episodes: int
    """Episodes per game."""
    max_turns: int
    """Turn limit."""
    seed: int = 2_026_000
    """First seed."""
    perception: int = 3
    """Perceptual difficulty."""
    reasoning: int = 3
    """Reasoning difficulty."""
    baseline_episodes: int = 100
    """Episodes per game of the random policy and the oracle, at least as many as in the suite."""
    replace: bool = False
    """Replace a suite that has not been published."""


def freeze(config: FreezeConfig) -> None:
    """Measure the baselines and write the file of a suite."""
    if config.name in suite_names() and not config.replace:
        raise UsageError(f"{config.name} exists: choose another name, or add --replace if it was never published")
    console = make_console()
    games = {}
    for game_id in sorted(BUILT_IN):
        game = make_game(game_id, config.perception, config.reasoning)
        scores = {}
        for policy in ("random", "oracle"):
            count = max(config.episodes, config.baseline_episodes)
            episodes = evaluate(game, policy, count, max_turns=config.max_turns, seed=config.seed)
            scores[policy] = math.fsum(one.score or 0.0 for one in episodes) / len(episodes)
        games[game_id] = SuiteGame(hash=behaviour_hash(game, config.seed), **scores)
        console.print(f"{game_id:<20} random {scores['random']:10.4g}   oracle {scores['oracle']:10.4g}")
        if not scores["oracle"] > scores["random"]:
            raise UsageError(f"the oracle of {game_id} is not better than random")
    fields = ("description", "episodes", "max_turns", "seed", "perception", "reasoning")
    suite = Suite(**{name: getattr(config, name) for name in fields}, games=games)
    path = FOLDER / f"{config.name}.toml"
    replace_file(path, _toml(suite).encode())
    console.print(f"suite   {path}", soft_wrap=True)


def _toml(suite: Suite) -> str:
    """Write a suite as TOML; strings and numbers look as in JSON."""
    data = suite.model_dump()
    games = data.pop("games")
    tables = [data, *games.values()]
    heads = ["", *(f'\n[games."{game}"]\n' for game in games)]
    return "".join(
        head + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
        for head, table in zip(heads, tables, strict=True)
    )


if __name__ == "__main__":
    with reporting_errors():
        freeze(parse_options(FreezeConfig, None, "benchmarks.suites"))
