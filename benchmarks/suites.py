"""Freeze suites: store hashes of their games, and baseline scores of the random policy and the oracle on their seeds.

python -m benchmarks.suites freeze vlmgym-2027.1-lite --description "..." --episodes 10 --max-turns 50
python -m benchmarks.suites refreeze              # all suites, with their current settings
python -m benchmarks.suites refreeze --changed    # only games whose images, prompts, rules or seeds have changed

A published suite never changes: after any change of images, prompts, rules or seeds, freeze a new version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

import tyro
from pydantic import ValidationError

from vlmgym.benchmark.suites import FOLDER, Suite, SuiteGame, behaviour_hash, read_suite, suite_names
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.evaluation import evaluate
from vlmgym.runs.files import replace_file
from vlmgym.sandbox.registry import BUILT_IN, make_game
from vlmgym.terminal import make_console, parse_options, reporting_errors

RANKED = {*BUILT_IN} - {"canary-v0", "caption-v0"}
"""Games in suites: all except a test of pipelines, and 16 photographs that anyone can describe beforehand."""
SETTINGS = ("description", "episodes", "max_turns", "seed", "perception", "reasoning", "baseline_episodes")


@dataclass(frozen=True, kw_only=True)
class FreezeConfig:
    """Freeze a suite of the games in `RANKED`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Name with a version, such as vlmgym-2026.2-lite."""
    description: str
    """Purpose and cost of the suite, in one sentence."""
    episodes: int
    """Episodes per game."""
    max_turns: int
    """Maximum number of turns per episode."""
    seed: int = 2_026_000
    """Seed of the first episode of each game."""
    perception: int = 3
    """Perceptual difficulty."""
    reasoning: int = 3
    """Reasoning difficulty."""
    baseline_episodes: int = 200
    """Episodes per game for the baselines of the random policy and the oracle; at least --episodes."""
    replace: bool = False
    """Replace an existing suite, which must not have been published."""


@dataclass(frozen=True, kw_only=True)
class RefreezeConfig:
    """Freeze all suites again with their current settings, before they are published."""

    changed: bool = False
    """Measure baselines only for games whose hash has changed, which takes seconds instead of minutes."""


named = tyro.conf.subcommand
COMMANDS: Any = Annotated[FreezeConfig, named("freeze")] | Annotated[RefreezeConfig, named("refreeze")]


def freeze(config: FreezeConfig, frozen: Mapping[str, SuiteGame] = MappingProxyType({})) -> None:
    """Write a suite's file; measure the baselines of games that are not in `known` or have changed since."""
    if config.name in suite_names() and not config.replace:
        raise UsageError(f"{config.name} exists: choose another name, or add --replace if it was never published")
    if config.baseline_episodes < config.episodes:
        raise UsageError("--baseline-episodes must be at least --episodes")
    try:
        suite = Suite(**{name: getattr(config, name) for name in SETTINGS}, games={})
    except ValidationError as error:
        raise UsageError(describe_validation_error(error)) from None
    console = make_console()
    games = {}
    for game_id in sorted(RANKED):
        game = make_game(game_id, config.perception, config.reasoning)
        digest = behaviour_hash(game, config.seed)
        if game_id in frozen and frozen[game_id].hash == digest:
            games[game_id] = frozen[game_id]
            continue
        levels = (config.perception, config.reasoning)
        random, oracle = (
            mean_score(game_id, *levels, policy, config.baseline_episodes, config.max_turns, config.seed)
            for policy in ("random", "oracle")
        )
        console.print(f"{game_id:<20} random {random:10.4g}   oracle {oracle:10.4g}")
        if not oracle > random:
            raise UsageError(f"the oracle of {game_id} is not better than random")
        games[game_id] = SuiteGame(hash=digest, random=random, oracle=oracle)
    path = FOLDER / f"{config.name}.toml"
    replace_file(path, _toml(suite.model_copy(update={"games": games})).encode())
    console.print(f"suite   {path}", soft_wrap=True)


@cache  # suites of different sizes share their baselines
def mean_score(
    game_id: str, perception: int, reasoning: int, policy: str, episodes: int, max_turns: int, seed: int
) -> float:
    """Play episodes of a game with a policy and return the mean score."""
    game = make_game(game_id, perception, reasoning)
    records = evaluate(game, policy, episodes, max_turns=max_turns, seed=seed, workers=0)
    return math.fsum(episode.score or 0.0 for episode in records) / len(records)


def refreeze(config: RefreezeConfig) -> None:
    """Freeze all suites again with their current settings."""
    for name in suite_names():
        suite = read_suite(name)
        settings = {setting: getattr(suite, setting) for setting in SETTINGS}
        freeze(FreezeConfig(name=name, replace=True, **settings), suite.games if config.changed else {})


def _toml(suite: Suite) -> str:
    """Format a suite as TOML; its strings and numbers have the same syntax as in JSON."""
    data = suite.model_dump(exclude_none=True)
    games = data.pop("games")
    tables = [data, *games.values()]
    heads = ["", *(f'\n[games."{game}"]\n' for game in games)]
    return "".join(
        head + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
        for head, table in zip(heads, tables, strict=True)
    )


if __name__ == "__main__":
    with reporting_errors():
        chosen = parse_options(COMMANDS, None, "python -m benchmarks.suites")
        freeze(chosen) if isinstance(chosen, FreezeConfig) else refreeze(chosen)
