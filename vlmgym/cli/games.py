"""`vlmgym games`: list the installed games and published settings, or show the rules and config fields of some.

Also describes config fields for the help of scripts and the pages in docs/games.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlmgym.sandbox.core.config import DIFFICULTIES, GameConfig
from vlmgym.sandbox.options import GameNames
from vlmgym.sandbox.registry import PRESETS, WITHOUT_DATA, about, game_class, load_games

KINDS: Mapping[str | None, str] = {"perception": "perceptual", "reasoning": "reasoning", None: "setting"}
"""Kinds of config fields: fields of each difficulty, and settings, which no difficulty affects."""


@dataclass(frozen=True, kw_only=True)
class GamesConfig:
    """Options of `vlmgym games`."""

    game: GameNames = ()
    """Names or ids of games, or names of published settings, to show."""


@dataclass(frozen=True, slots=True)
class Option:
    """A config field, described for users; `levels` has the value at each level; empty if no level sets option."""

    name: str
    kind: str
    default: str
    levels: tuple[str, ...]
    accepted: str
    description: str


def options_of(config: type[GameConfig]) -> list[Option]:
    """List all config fields: perceptual, then reasoning, then settings."""
    difficulty_of, declared = config.field_difficulties(), config.model_json_schema()["properties"]
    options = []
    for difficulty in (*DIFFICULTIES, None):
        levels = {} if difficulty is None else config.level_values(difficulty)
        for name, schema in declared.items():
            if difficulty_of.get(name) != difficulty:
                continue
            default, values = format_value(schema["default"]), tuple(map(format_value, levels.get(name, ())))
            options.append(Option(name, KINDS[difficulty], default, values, _accepted(schema), schema["description"]))
    return options


def list_fields(config: type[GameConfig]) -> str:
    """List the names of all config fields by kind, on one line."""
    # Scripts call this at every start, so avoid the JSON schema, which takes milliseconds.
    difficulty_of = config.field_difficulties()
    names = {
        kind: ", ".join(name for name in config.model_fields if difficulty_of.get(name) == difficulty)
        for difficulty, kind in KINDS.items()
    }
    return "; ".join(f"{kind}: {fields}" for kind, fields in names.items() if fields)


def print_games(names: Sequence[str]) -> None:
    """Print the docstring and config fields of games, and the definition of published settings."""
    from rich.box import SIMPLE
    from rich.table import Table

    from vlmgym.terminal import make_console

    console = make_console()
    settings = [PRESETS.get(name) for name in names]
    pages = [game_class(name if preset is None else preset.game) for name, preset in zip(names, settings)]
    for name, preset, game in zip(names, settings, pages):
        if preset is not None:
            console.print(f"{name}\n{preset.describe()}\n", soft_wrap=True)
        console.print(inspect.cleandoc(game.__doc__ or ""), soft_wrap=True)
        for kind in KINDS.values():
            fields = Table("", "default", "levels 1 to 5", "accepts", "", box=SIMPLE, title=kind, title_justify="left")
            for option in options_of(game.Config):
                if option.kind == kind:
                    fields.add_row(
                        option.name, option.default, " ".join(option.levels), option.accepted, option.description
                    )
            console.print(fields)


def games(config: GamesConfig) -> None:
    """Run `vlmgym games`."""
    if config.game:
        print_games(config.game)
        return
    loaded, failed = load_games()
    summaries = {game_id: about(game) for game_id, game in loaded.items()}
    for game_id, summary in sorted({**summaries, **{name: str(error) for name, error in failed.items()}}.items()):
        print(f"{game_id:<20} {summary}")
    print()
    for name, generated in WITHOUT_DATA.items():
        print(f"{name:<20} {generated}, or with --config data=...: {about(game_class(name))}")
    print("\nPublished settings:")
    for name, preset in PRESETS.items():
        print(f"\n{name}\n{preset.describe()}")


def format_value(value: object) -> str:
    """Format a value in the syntax of `--config`."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _accepted(schema: Mapping[str, Any]) -> str:
    """Describe the values that a JSON schema accepts."""
    if "anyOf" in schema:
        return " or ".join(map(_accepted, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema["type"] == "array":
        return f"{schema['minItems']} numbers" if "prefixItems" in schema else "a list of texts"
    least, most = schema.get("minimum"), schema.get("maximum")
    limits = "" if least is None else f" from {least:.9g}" if most is None else f" {least:.9g} to {most:.9g}"
    kind: str = schema["type"]
    return {"boolean": "true, false", "string": "text"}.get(kind, kind) + limits
