"""The file of a curriculum: TOML, validated; docs/curricula.md has its fields."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from vlmgym.errors import UsageError, describe_validation_error

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Measure = Literal["score", "reward", "played"]

LARGEST = 1e6


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class StageFile(_Part):
    """A stage of an entry.

    Attributes:
        name: What the records call it; by default its number, from 1.
        episodes: How many episodes of the entry it lasts, where the schedule is by episode; the last has no end.
        at_least: As in the entry, for this stage.
        perception: Level 1 to 5, by default that of the entry.
        reasoning: Likewise.
        overrides: Single config fields of the game, beside those of the entry or in their place.
    """

    name: str | None = Field(None, max_length=80)
    episodes: int | None = Field(None, ge=1)
    at_least: float | None = None
    perception: int | None = Field(None, ge=1, le=5)
    reasoning: int | None = Field(None, ge=1, le=5)
    overrides: dict[str, Any] = {}

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str | None) -> str | None:
        if name is not None and not (name.isprintable() and name.strip()):
            raise ValueError(f"a name is one line of printable characters, not {name!r}")
        return name


class EntryFile(_Part):
    """A game of the mixture and its stages.

    Attributes:
        game: Id or name.
        weight: How often it comes, in proportion to the other weights.
        perception: Level 1 to 5 of stages that name none.
        reasoning: Likewise.
        overrides: Single config fields of the game at all stages.
        by: What leads from stage to stage: `episode`, so many of them, or `success`.
        measure: What success is: the episode's score, the mean total reward of its turns, or the share of turns that
            were played (neither illegal nor unparsable).
        at_least: The measure from which on an episode is a success, 1, below 0; None: the measure itself is taken.
        window: Over how many of the latest episodes at the stage success is averaged.
        up: The mean success from which on the next stage follows.
        down: The mean success down to which the stage before follows; None: never.
        stages: From the first; none: the entry is one stage without a name.
    """

    game: str
    weight: float = Field(1.0, gt=0, le=LARGEST)
    perception: int = Field(3, ge=1, le=5)
    reasoning: int = Field(3, ge=1, le=5)
    overrides: dict[str, Any] = {}
    by: Literal["episode", "success"] = "episode"
    measure: Measure | None = None
    at_least: float | None = None
    window: int | None = Field(None, ge=1, le=10_000)
    up: float | None = None
    down: float | None = None
    stages: tuple[StageFile, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _one_schedule(self) -> EntryFile:
        for n, stage in enumerate(self.stages, 1):
            if self.by == "success" and stage.episodes is not None:
                raise ValueError(f'stage {n} lasts as success says: leave out its episodes, or say by = "episode"')
            if self.by == "episode" and (stage.episodes is None) != (n == len(self.stages)):
                raise ValueError("each stage but the last says how many episodes it lasts, and the last does not")
        needed = {"measure": self.measure, "window": self.window, "up": self.up}
        given = {name: value for name, value in {**needed, "down": self.down}.items() if value is not None}
        if self.by == "success":
            if missing := [name for name in needed if name not in given]:
                raise ValueError(f'by = "success" needs {" and ".join(missing)}')
            if len(self.stages) < 2:
                raise ValueError('by = "success" needs at least two stages')
        elif given or self.at_least is not None or any(stage.at_least is not None for stage in self.stages):
            raise ValueError(f'{next(iter(given), "at_least")} is for by = "success"')
        if self.up is not None and self.down is not None and self.down >= self.up:
            raise ValueError(f"down is less than up, not {self.down:g} with up = {self.up:g}")
        if self.by == "success":
            self._check_reachable()
        return self

    def _check_reachable(self) -> None:
        """Refuse limits that no success can pass; a score or a reward of its own has no bounds that are known here."""
        least = [self.at_least if stage.at_least is None else stage.at_least for stage in self.stages]
        given = [value for value in least if value is not None]
        if given and len(given) < len(least):
            raise ValueError(
                f"stage {least.index(None) + 1} has no at_least and others have: give it to all or to none"
            )
        if self.measure == "played" and (wrong := [value for value in given if not 0 < value <= 1]):
            raise ValueError(f'at_least of measure = "played" is more than 0 and at most 1, not {wrong[0]:g}')
        if self.measure != "played" and not given:
            return
        if self.up is not None and not 0 < self.up <= 1:
            raise ValueError(f"up is more than 0 and at most 1, as success is a share here, not {self.up:g}")
        if self.down is not None and self.down < 0:
            raise ValueError(f"down is at least 0, as success is a share here, not {self.down:g}")


class CurriculumFile(_Part):
    """A whole curriculum.

    Attributes:
        at_once: Where stages follow from success: how many episodes an evaluation plays at once, at most. An episode is
            picked with the results of all but the `at_once` - 1 before it, whatever the order in which they end.
        entries: The games of the mixture.
    """

    at_once: int = Field(16, ge=1, le=10_000)
    entries: tuple[EntryFile, ...] = Field(min_length=1, strict=False)


_COUNTED: Mapping[str, tuple[str, type[BaseModel]]] = {"entries": ("entry", EntryFile), "stages": ("stage", StageFile)}
"""Lists of the file: what one of them is called, and its type."""

_HEADERS: Mapping[str, str] = {"entries": "[[entries]]", "stages": "[[entries.stages]]"}
"""What stands above each of a list."""


def builtin_names() -> list[str]:
    """Names of the curricula that vlmgym brings along."""
    return sorted(file.stem for file in _builtin().glob("*.toml"))


def read_file(path: Path) -> CurriculumFile:
    """A curriculum from its file, or by its name if it is one that vlmgym brings along.

    Raises:
        UsageError: There is no such file, or it is not a curriculum; the message names file, entry, what is accepted.
    """
    if str(path) in builtin_names():
        text = (_builtin() / f"{path}.toml").read_text(encoding="utf-8")
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")  # some editors put a mark in front
        except FileNotFoundError:
            names = ", ".join(builtin_names())
            raise UsageError(f"{path} is neither a file nor one of the curricula {names}") from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a text in UTF-8") from None
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and Python's of a number with thousands of digits
        raise UsageError(f"{path} is not TOML, as a curriculum is: {error}") from None
    try:
        return CurriculumFile.model_validate(data)
    except ValidationError as error:
        raise UsageError(f"{path}: {_in_words(error)}") from None


def _builtin() -> Path:
    return Path(__file__).with_name("files")


def _in_words(error: ValidationError) -> str:
    """The first problem; where it is in words, entries and stages counted from 1."""
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    model: type[BaseModel] = CurriculumFile
    words: list[str] = []
    for part in first["loc"]:
        if isinstance(part, int):
            word, model = _COUNTED[words.pop()]
            part = f"{word} {part + 1}"
        words.append(part)
    if first["type"] == "extra_forbidden":
        where, said = words[:-1], f"there is no {words[-1]!r}; the fields are {', '.join(model.model_fields)}"
    elif first["type"] == "missing":
        where, said = words[:-1], f"{words[-1]} is missing"
    elif first["type"] == "too_short":
        where, said = words[:-1], f"{words[-1]} has at least one: write {_HEADERS[words[-1]]} above it"
    elif first["type"] == "tuple_type":
        where, said = words[:-1], f"{words[-1]} is a list: write {_HEADERS[words[-1]]} above each"
    elif first["type"] in ("dict_type", "model_type"):
        where, said = words, f"a table is needed, such as {{ name = value }}, not {first['input']!r}"
    else:
        where, said = words, describe_validation_error(error).removeprefix(".".join(map(str, first["loc"])) + ": ")
    return f"{', '.join(where)}: {said}" if where else said
