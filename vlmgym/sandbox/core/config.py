"""Game configs: frozen, validated fields, grouped into perceptual and reasoning difficulty with five levels each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vlmgym.checks import as_int
from vlmgym.errors import UsageError, describe_validation_error, did_you_mean, short_repr
from vlmgym.sandbox.core.response_format import ThinkTag

Difficulty = Literal["perception", "reasoning"]

DIFFICULTIES: tuple[Difficulty, ...] = ("perception", "reasoning")
LEVELS = (1, 2, 3, 4, 5)
PYTHON_WORDS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}
"""Python spellings of values that JSON spells differently."""


def config_field(difficulty: Difficulty, value: Any, description: str, **bounds: Any) -> Any:
    """Declare a `GameConfig` field that affects perceptual or reasoning difficulty.

    Args:
        difficulty: Difficulty that the field affects.
        value: One value for all levels, or a list of the values at levels 1 to 5, of which the third is the default.
        description: User-facing description, as a sentence.
        bounds: Limits as in `pydantic.Field`, e.g. `ge=3, le=8`.
    """
    extra: dict[str, Any] = {"difficulty": difficulty}
    if isinstance(value, list):
        if len(value) != len(LEVELS):
            raise TypeError(f"a config field needs one value, or a list of {len(LEVELS)} by level, got {value!r}")
        _, _, value, _, _ = extra["levels"] = value
    return Field(default=value, description=description, json_schema_extra=extra, **bounds)


def setting(default: Any, description: str, **bounds: Any) -> Any:
    """Declare a `GameConfig` field that does not affect difficulty, such as a data path; see `config_field`."""
    return Field(default=default, description=description, json_schema_extra={"difficulty": None}, **bounds)


def _as_tuple(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(","))
    return tuple(value) if isinstance(value, list) else value


LIST = BeforeValidator(_as_tuple)
"""Annotation for a tuple field that also accepts a list, as in JSON, or comma-separated text, as on a command line."""


class GameConfig(BaseModel):
    """Base class of game configs; frozen, with fields declared by `config_field` or `setting`.

    Perceptual and reasoning difficulty each have levels from 1 (easy) to 5 (hard). A level sets those fields of its
    difficulty that are declared with one value per level.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    later_fields: ClassVar[tuple[str, ...]] = ("think_tag",)
    """Fields that a later version added; with their defaults, `Game.fingerprint` is the same as without them."""

    size: int = config_field("perception", 640, "Side of the square image in pixels.", ge=64, le=2048)
    prompt: str | None = setting(None, "Replaces the game's prompt; {prompt} inserts the original.", max_length=20_000)
    think_tag: ThinkTag = setting("think", "Tag of the reasoning in responses.")

    @classmethod
    def at(cls, /, perception: int = 3, reasoning: int = 3, **overrides: Any) -> GameConfig:
        """Config at the given difficulty levels, with individual fields overridden.

        Raises:
            UsageError: A level is not 1 to 5, or a config field is unknown or has an invalid value.
        """
        values = {**cls._level("perception", perception), **cls._level("reasoning", reasoning), **overrides}
        if unknown := sorted(set(values) - set(cls.model_fields)):
            meant = did_you_mean(unknown[0], cls.model_fields)
            raise UsageError(
                f"unknown config field {unknown[0]!r}{meant}; the fields are {', '.join(sorted(cls.model_fields))}"
            )
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError(describe_validation_error(error)) from None

    @classmethod
    def _level(cls, difficulty: Difficulty, level: int) -> Mapping[str, Any]:
        level = as_int(level)
        if type(level) is not int or level not in LEVELS:
            raise UsageError(f"{difficulty} must be between 1 (easy) and 5 (hard), got {short_repr(level)}")
        return {name: values[level - 1] for name, values in cls.level_values(difficulty).items()}

    @property
    def unused_fields(self) -> tuple[str, ...]:
        """Names of config fields that have no effect, given the values of the others."""
        return ()

    @classmethod
    def level_values(cls, difficulty: Difficulty) -> dict[str, list[Any]]:
        """Values at levels 1 to 5 of each field that a difficulty sets, keyed by field name."""
        names = [name for name, affected in cls.field_difficulties().items() if affected == difficulty]
        extras: dict[str, Any] = {name: cls.model_fields[name].json_schema_extra for name in names}
        return {name: extra["levels"] for name, extra in extras.items() if "levels" in extra}

    @classmethod
    def field_difficulties(cls) -> dict[str, Difficulty]:
        """Difficulty of each field declared by `config_field`, keyed by field name."""
        difficulties: dict[str, Difficulty] = {}
        for name, field in cls.model_fields.items():
            extra = field.json_schema_extra
            if not isinstance(extra, dict) or extra.get("difficulty", "") not in (*DIFFICULTIES, None):
                raise TypeError(f"{cls.__name__}.{name} has no difficulty: declare it with config_field() or setting()")
            if extra["difficulty"] is not None:
                difficulties[name] = "perception" if extra["difficulty"] == "perception" else "reasoning"
        return difficulties


class DegradedConfig(GameConfig):
    """Config fields of image degradation; level 3 leaves images of data unchanged."""

    later_fields = (*GameConfig.later_fields, "shade")

    blur: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.3, 0.5], "Blur radius in percent of the image's side.", ge=0.0, le=5.0
    )
    noise: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.08, 0.16], "Amplitude of the noise; 1 is full scale.", ge=0.0, le=0.5
    )
    contrast: float = config_field(
        "perception", [1.3, 1.15, 1.0, 0.8, 0.6], "Contrast relative to the original image.", ge=0.1, le=2.0
    )
    clutter: int = config_field("perception", [0, 0, 0, 4, 8], "Strokes drawn over the image.", ge=0, le=50)
    scale: float = config_field(
        "perception", [1.0, 1.0, 1.0, 0.85, 0.7], "Size of the image relative to its frame.", ge=0.1, le=1.0
    )
    shade: float = config_field("perception", 0.0, "Darkness of soft shadows on the image.", ge=0.0, le=0.9)
    crop: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.0, 0.06], "Fraction of width and height cropped at the edges.", ge=0.0, le=0.4
    )


class ShadedConfig(DegradedConfig):
    """Config fields of drawn pictures."""

    later_fields = GameConfig.later_fields  # all default images changed with `shade`

    shade: float = config_field(
        "perception", [0.0, 0.2, 0.4, 0.4, 0.4], "Darkness of soft shadows on the image.", ge=0.0, le=0.9
    )


class TextConfig(ShadedConfig):
    """Config fields of pictures with text."""

    text: float = config_field(
        "perception",
        [1.2, 1.1, 1.0, 0.95, 0.9],
        "Size of letters and numbers relative to the normal one.",
        ge=0.5,
        le=1.2,
    )


def parse_config_fields(settings: Iterable[str]) -> dict[str, Any]:
    """Parse `NAME=VALUE` arguments from a command line.

    Values are JSON (`5`, `0.5`, `true`, `null`) or Python's `True`, `False` or `None`; anything else is a string.
    """
    overrides: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not (name and equals):
            raise UsageError(f"config fields are set by NAME=VALUE, e.g. rows=5, got {setting!r}")
        if name in overrides:
            raise UsageError(f"{name} is set twice")
        try:
            overrides[name] = PYTHON_WORDS[text] if text in PYTHON_WORDS else json.loads(text)
        except ValueError:
            overrides[name] = text
    return overrides
