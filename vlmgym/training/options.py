"""Parse the command line of a training run. Presets are files of command-line options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from vlmgym.cli.console import parse_options
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.registry import make_game
from vlmgym.training.config import DEFAULT_GAMES, TrainConfig

PRESETS = Path(__file__).parent / "presets"


def read_config(args: Sequence[str]) -> TrainConfig:
    """Parse a command line, whose options override its preset; raise `UsageError` if one is invalid."""
    known = _parse_known(args)
    name = known.preset or ("tiny" if known.model is None else "1x24gb")
    preset = read_preset(name)
    if (PRESETS / f"{name}.args").is_file():  # a user's file is not adapted
        preset = _for_games(preset, tuple(known.games or DEFAULT_GAMES), known.curriculum)
    given = {word.partition("=")[0] for group in known.config for word in group}
    preset = [word for word in preset if "=" not in word or word.partition("=")[0] not in given]
    config = parse_options(TrainConfig, [*preset, *args], prog="vlmgym train")
    sizes = [word for word in args if word.startswith("--tiny.")]
    if sizes and config.model.model is not None:
        raise UsageError(f"{sizes[0]} only applies to a tiny model: remove it or --model")
    _check_algorithm(config, args)
    return config


def _for_games(preset: list[str], names: tuple[str, ...], curriculum: str | None) -> list[str]:
    """Adapt a built-in preset, written for 2048, to other games: drop 2048's config fields, states and rewards."""
    if curriculum is None:
        games = {make_game(name) for name in names}
        fields = [] if names == DEFAULT_GAMES else ["--config"]
    else:
        games, fields = {*Curriculum.read(Path(curriculum)).games}, ["--config", "--size"]
    kinds = {game.name for game in games}
    rewards = [] if "2048" in kinds else ["--reward.shaping", "--reward.illegal", "--reward.unparsable"]
    states = ["--states.moves"] if all(isinstance(game, Task) for game in games) else []
    preset = drop_options(preset, *fields, *rewards, *states)
    if len(kinds) > 1 and "2048" in kinds:
        preset += ["--reward.shaping", "sign"]  # otherwise its large rewards would dominate
    return preset


def _check_algorithm(config: TrainConfig, args: Sequence[str]) -> None:
    """Reject options of the other algorithm. A preset may have them, because it serves both algorithms."""
    given = [word.partition("=")[0] for word in args if word.startswith("--")]
    other = {"grpo": "ppo", "ppo": "grpo"}[config.algorithm]
    for option in given:
        if option.startswith(f"--{other}."):
            raise UsageError(f"{option} only applies to {other.upper()}: remove it, or use --algorithm {other}")
    if config.algorithm == "ppo" and "--update.lr" in given and config.ppo.lr is not None:
        raise UsageError(f"--ppo.lr {config.ppo.lr:g} overrides --update.lr: set --ppo.lr instead")


def _parse_known(args: Sequence[str]) -> argparse.Namespace:
    """Parse the options that select and filter a preset."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--preset", "--model", "--curriculum"):
        parser.add_argument(name)
    parser.add_argument("--games", nargs="*")
    parser.add_argument("--config", nargs="+", action="append", default=[])
    try:
        return parser.parse_known_args(args)[0]
    except argparse.ArgumentError:  # an option without a value, which tyro reports
        return parser.parse_args([])


def drop_options(options: Sequence[str], *names: str) -> list[str]:
    """Remove options and their values."""
    kept: list[str] = []
    dropping = False
    for word in options:
        dropping = word.partition("=")[0] in names or (dropping and not word.startswith("--"))
        if not dropping:
            kept.append(word)
    return kept


def read_preset(preset: str) -> list[str]:
    """Read options from a built-in preset or a file, ignoring # comments; raise `UsageError` on failure."""
    builtin = PRESETS / f"{preset}.args"
    path = builtin if builtin.is_file() else Path(preset)
    try:
        return shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except (OSError, UnicodeDecodeError, ValueError):
        names = ", ".join(sorted(file.stem for file in PRESETS.glob("*.args")))
        raise UsageError(f"preset {preset!r} not found: use {names}, or a file of options") from None
