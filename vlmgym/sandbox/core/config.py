"""A game's configuration: frozen, validated config fields, each marked perceptual or reasoning, and two difficulties
that set them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vlmgym.checks import as_int
from vlmgym.errors import UsageError, describe_validation_error, short_repr

Dial = Literal["perception", "reasoning"]
Levels = Mapping[int, Mapping[str, Any]]

DIFFICULTIES: tuple[Dial, ...] = ("perception", "reasoning")
LEVELS = (1, 2, 3, 4, 5)
PYTHON_WORDS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}
"""Values as Python spells them, which JSON spells otherwise."""


def config_field(dial: Dial, default: Any, description: str, **bounds: Any) -> Any:
    """A field of a `GameConfig` that belongs to one dial.

    Args:
        dial: `perception` (harder for the eye) or `reasoning` (harder for the mind).
        default: The value of the published setting of the game.
        description: One sentence for the command line and the docs.
        bounds: Limits as in `pydantic.Field`, for instance `ge=3, le=8`.
    """
    return Field(default=default, description=description, json_schema_extra={"dial": dial}, **bounds)


def setting(default: Any, description: str, **bounds: Any) -> Any:
    """A field of a `GameConfig` that makes nothing harder, such as where data are; otherwise as `config_field`."""
    return Field(default=default, description=description, json_schema_extra={"dial": None}, **bounds)


class GameConfig(BaseModel):
    """Base of all game configurations: a frozen value whose fields are made by `config_field`.

    A subclass sets `levels` to a table of two difficulties with five levels each, harder from 1 to 5; level 3 is the
    published setting of the game. A level names only the config fields it changes.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    levels: ClassVar[Mapping[Dial, Levels]] = {}

    size: int = config_field("perception", 640, "Side of the square image in pixels.", ge=64, le=2048)
    prompt: str | None = setting(
        None,
        "What a model is told in place of the game's own words, for which {prompt} stands in it.",
        max_length=20_000,
    )
    strict: bool = setting(
        False, "Accept an answer only in its documented spelling, without markup; docs/protocols.md tables both."
    )

    @classmethod
    def at(cls, /, perception: int = 3, reasoning: int = 3, **overrides: Any) -> GameConfig:
        """The configuration at a level of each dial, with single config fields overridden.

        Raises:
            UsageError: A level is not 1 to 5, a config field is unknown, or its value is not accepted.
        """
        values = {**cls._level("perception", perception), **cls._level("reasoning", reasoning), **overrides}
        if unknown := sorted(set(values) - set(cls.model_fields)):
            raise UsageError(
                f"there is no option {unknown[0]!r}; the options are {', '.join(sorted(cls.model_fields))}"
            )
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError(describe_validation_error(error)) from None

    @classmethod
    def _level(cls, dial: Dial, level: int) -> Mapping[str, Any]:
        level = as_int(level)
        if isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
            raise UsageError(f"{dial} is a level from 1 (easy) to 5 (hard), not {short_repr(level)}")
        return cls.levels.get(dial, {}).get(level, {})

    @classmethod
    def field_difficulties(cls) -> dict[str, Dial]:
        """The difficulty of each config field, by its name; settings, which have none, are left out."""
        difficulties: dict[str, Dial] = {}
        for name, field in cls.model_fields.items():
            extra = field.json_schema_extra
            if not isinstance(extra, dict) or extra.get("dial", "") not in (*DIFFICULTIES, None):
                raise TypeError(f"{cls.__name__}.{name} is not marked: declare it with config_field() or setting()")
            if extra["dial"] is not None:
                difficulties[name] = "perception" if extra["dial"] == "perception" else "reasoning"
        return difficulties


def parse_config_fields(settings: Iterable[str]) -> dict[str, Any]:
    """Knobs from texts `NAME=VALUE`, as on a command line.

    A value is JSON (`5`, `0.5`, `true`, `null`) or `True`, `False` or `None` as in Python; whatever else is a word.

    Raises:
        UsageError: A text is not of this form, or a name comes twice.
    """
    overrides: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not (name and equals):
            raise UsageError(f"a setting is NAME=VALUE, for instance rows=5, not {setting!r}")
        if name in overrides:
            raise UsageError(f"{name} is set twice")
        try:
            overrides[name] = PYTHON_WORDS[text] if text in PYTHON_WORDS else json.loads(text)
        except ValueError:
            overrides[name] = text
    return overrides
