"""The options of games in words, from their declarations: `vlmgym games GAME`, help of scripts,
`docs/config_fields.md`.

python -m vlmgym.cli.games > docs/config_fields.md
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, GameConfig
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import game_class, load_games
from vlmgym.terminal import make_console

KINDS: Mapping[str | None, str] = {"perception": "perceptual", "reasoning": "reasoning", None: "setting"}
"""What an option is called by its dial."""
PAGE = """\
# Knobs of the games

Written by `python -m vlmgym.cli.games` from the declarations of the games. A config field is perceptual
(`--perception` 1 to 5 sets
those that have levels) or reasoning (likewise `--reasoning`); a setting makes nothing harder. The default is level 3.
`--config NAME=VALUE` sets any of them, whatever the level. What the levels do was [measured](difficulty).
"""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a game.

    Attributes:
        name: As in `--config`.
        kind: `perceptual`, `reasoning` or `setting`.
        default: Its value if nothing is said.
        levels: Its value at each level of its dial; nothing if no level sets it.
        accepted: What it takes.
        description: What it does.
    """

    name: str
    kind: str
    default: str
    levels: tuple[str, ...]
    accepted: str
    description: str


def options_of(config: type[GameConfig]) -> list[Option]:
    """All options of a configuration: perceptual, then reasoning, then those of no dial."""
    difficulty_of, declared = config.field_difficulties(), config.model_json_schema()["properties"]
    found = []
    for dial in (*DIFFICULTIES, None):
        for name, schema in declared.items():
            if difficulty_of.get(name) != dial:
                continue
            set_at = [config.levels.get(dial, {}).get(level, {}) for level in LEVELS] if dial else []
            levels = [level.get(name, schema["default"]) for level in set_at if any(name in at for at in set_at)]
            default, values = value_in_words(schema["default"]), tuple(map(value_in_words, levels))
            found.append(Option(name, KINDS[dial], default, values, _accepted(schema), schema["description"]))
    return found


def in_short(config: type[GameConfig]) -> str:
    """The names of all options by their kind, as a sentence."""
    # Every script says it when it starts: without the schema, which takes milliseconds.
    difficulty_of = config.field_difficulties()
    names = {
        kind: ", ".join(name for name in config.model_fields if difficulty_of.get(name) == dial)
        for dial, kind in KINDS.items()
    }
    return "; ".join(f"{kind}: {told}" for kind, told in names.items() if told)


def table(config: type[GameConfig]) -> str:
    """The options as a table in Markdown."""
    rows = (
        f"| `{one.name}` | {one.kind} | {one.default} | {' '.join(one.levels)} | {one.accepted} | {one.description} |"
        for one in options_of(config)
    )
    return "\n".join(
        ["| config field | kind | default | levels 1 to 5 | accepts | |", "|---|---|---|---|---|---|", *rows]
    )


def tell_games(names: Sequence[str]) -> None:
    """Print the pages of games, their docstrings and all their options, and what a published setting of one is.

    Raises:
        UsageError: There is no such game.
    """
    console = make_console()
    settings = [PRESETS.get(name) for name in names]
    pages = [game_class(name if preset is None else preset.game) for name, preset in zip(names, settings)]
    for name, preset, found in zip(names, settings, pages):
        if preset is not None:
            console.print(f"{name}\n{preset.words()}\n", highlight=False, markup=False, soft_wrap=True)
        console.print(inspect.cleandoc(found.__doc__ or ""), highlight=False, soft_wrap=True)
        for kind in KINDS.values():
            told = Table("", "default", "levels 1 to 5", "accepts", "", box=SIMPLE, title=kind, title_justify="left")
            for one in options_of(found.Config):
                if one.kind == kind:
                    told.add_row(one.name, one.default, " ".join(one.levels), one.accepted, one.description)
            console.print(told)


def page() -> str:
    """The page of all games that are installed."""
    parts = (f"## {found.name}\n\n{table(found.Config)}\n" for found in load_games()[0].values())
    return "\n".join([PAGE, *parts])


def value_in_words(value: object) -> str:
    """A value as `--config` takes it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _accepted(schema: Mapping[str, Any]) -> str:
    """What a schema of pydantic accepts."""
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


if __name__ == "__main__":
    print(page(), end="")
