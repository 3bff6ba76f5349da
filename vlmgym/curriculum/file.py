"""Curriculum files in TOML; docs/curricula.md lists the fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vlmgym.checks import read_toml
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.sandbox.core.data_task import DATA_SETTINGS, DataTask
from vlmgym.sandbox.registry import PRESETS, game_class

BUILT_IN = Path(__file__).with_name("files")
"""Folder of the built-in curricula."""
By = Literal["step", "episode", "success"]
Measure = Literal["score", "reward", "played"]


class StrictModel(BaseModel):
    """Base class for data read from files: immutable and strictly validated."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class StageFile(StrictModel):
    """A stage of an entry.

    Attributes:
        name: Name in records. Default: the number of the stage, counted from 1.
        steps: Duration in training steps, with `by = "step"`; the last stage has none.
        episodes: Duration in episodes of the entry, with `by = "episode"`; the last stage has none.
        at_least: Success threshold. Default: the entry's.
        perception: Perceptual difficulty level, 1 to 5. Default: the entry's.
        reasoning: Reasoning difficulty level, 1 to 5. Default: the entry's.
        overrides: Config fields of the game, merged over the entry's.
    """

    name: str | None = None
    steps: int | None = Field(None, ge=1)
    episodes: int | None = Field(None, ge=1)
    at_least: float | None = None
    perception: int | None = Field(None, ge=1, le=5)
    reasoning: int | None = Field(None, ge=1, le=5)
    overrides: dict[str, Any] = {}

    @property
    def duration(self) -> int | None:
        """Number of steps or episodes; None for the last stage and for stages that advance by success."""
        return self.episodes if self.steps is None else self.steps


class EntryFile(StrictModel):
    """A game of the mixture and its stages.

    Attributes:
        game: Id or name of the game.
        weight: Relative frequency of the entry in the mixture.
        perception: Default perceptual difficulty level of the stages, 1 to 5.
        reasoning: Default reasoning difficulty level of the stages, 1 to 5.
        overrides: Config fields of the game at all stages.
        by: Whether stages advance by the number of training steps, by the number of episodes of the entry, or by
            success. Evaluation has no training steps: each episode counts as a step.
        measure: Measure of an episode's success: its score, the mean total reward of its turns, or the fraction of
            turns that were played (neither illegal nor unparsable).
        at_least: Threshold of the measure: success is 1 at or above it, else 0. None: success is the measure itself.
        window: Number of latest episodes of the stage over which success is averaged.
        up: The entry advances to the next stage when mean success is at least this.
        down: The entry goes back to the previous stage when mean success is at most this; None: never.
        stages: Stages in order; if empty, the entry is a single stage without a name.
    """

    game: str
    weight: float = Field(1.0, gt=0)
    perception: int = Field(3, ge=1, le=5)
    reasoning: int = Field(3, ge=1, le=5)
    overrides: dict[str, Any] = {}
    by: By = "episode"
    measure: Measure | None = None
    at_least: float | None = None
    window: int | None = Field(None, ge=1)
    up: float | None = None
    down: float | None = None
    stages: tuple[StageFile, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _one_schedule(self) -> EntryFile:
        for n, stage in enumerate(self.stages, 1):
            for by, duration in (("step", stage.steps), ("episode", stage.episodes)):
                if duration is not None and by != self.by:
                    raise ValueError(f'stage {n} has {by}s, which need by = "{by}"')
            if self.by != "success" and (stage.duration is None) != (n == len(self.stages)):
                raise ValueError(f"stage {n}: every stage except the last must have {self.by}s, and the last must not")
        needed = {"measure": self.measure, "window": self.window, "up": self.up}
        limits = {name: value for name, value in {**needed, "down": self.down}.items() if value is not None}
        if self.by == "success":
            if missing := [name for name in needed if name not in limits]:
                raise ValueError(f'by = "success" needs {" and ".join(missing)}')
            if len(self.stages) < 2:
                raise ValueError('by = "success" needs at least two stages')
        elif limits or self.at_least is not None or any(stage.at_least is not None for stage in self.stages):
            raise ValueError(f'{next(iter(limits), "at_least")} needs by = "success"')
        if self.up is not None and self.down is not None and self.down >= self.up:
            raise ValueError(f"down must be less than up, got down = {self.down:g} and up = {self.up:g}")
        return self


class CurriculumFile(StrictModel):
    """A curriculum.

    Attributes:
        max_concurrency: Maximum number of concurrent episodes in an evaluation if stages advance by success. The stage
            of an episode depends on all earlier episodes except the latest `max_concurrency` - 1, and not on the
            order in which they end.
        entries: Games of the mixture.
    """

    max_concurrency: int = Field(16, ge=1)
    entries: tuple[EntryFile, ...] = Field(min_length=1, strict=False)


def builtin_names() -> list[str]:
    """Return the names of the built-in curricula."""
    return sorted(file.stem for file in BUILT_IN.glob("*.toml"))


def read_file(path: Path) -> CurriculumFile:
    """Read a curriculum file, or a built-in curriculum by its name.

    Raises:
        UsageError: The file does not exist or is invalid; the message says where, and what is accepted.
    """
    builtin = BUILT_IN / f"{path}.toml"
    if not builtin.is_file() and not path.exists():
        raise UsageError(f"{path} is neither a file nor a built-in curriculum ({', '.join(builtin_names())})")
    try:
        return CurriculumFile.model_validate(read_toml(builtin if builtin.is_file() else path))
    except ValidationError as error:
        raise UsageError(f"{path}: {describe_validation_error(error)}") from None


def with_data(file: CurriculumFile, settings: Mapping[str, Any]) -> CurriculumFile:
    """Replace the data settings of all stages of a curriculum file.

    Only entries that take data are changed: tasks, and games with `data` or `split` in the file, such as Shisen-Sho
    with a split of CIFAR-10.

    Raises:
        UsageError: A setting is not one of `DATA_SETTINGS`, or no entry takes data.
    """
    if others := [name for name in settings if name not in DATA_SETTINGS]:
        raise UsageError(
            f"{others[0]} cannot be set for a curriculum, which sets the difficulty and config fields of its games; "
            f"only {', '.join(DATA_SETTINGS)} can be set"
        )
    if not settings:
        return file
    # Other data settings do not show that an entry takes data: `columns` is also the width of a board.
    takers = [_is_task(entry.game) or bool({"data", "split"} & entry.overrides.keys()) for entry in file.entries]
    if not any(takers):
        raise UsageError(f"no game of this curriculum takes {next(iter(settings))}")
    entries = (_with(entry, settings) if takes else entry for entry, takes in zip(file.entries, takers))
    return file.model_copy(update={"entries": tuple(entries)})


def _is_task(game: str) -> bool:
    return issubclass(game_class(PRESETS[game].game if game in PRESETS else game), DataTask)


def _with(entry: EntryFile, settings: Mapping[str, Any]) -> EntryFile:
    stages = (
        stage.model_copy(update={"overrides": {k: v for k, v in stage.overrides.items() if k not in settings}})
        for stage in entry.stages
    )
    return entry.model_copy(update={"overrides": {**entry.overrides, **settings}, "stages": tuple(stages)})
