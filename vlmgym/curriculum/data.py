"""Data settings of a curriculum, given outside its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlmgym.curriculum.file import CurriculumFile, EntryFile
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.task import Task, TaskConfig
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import game_class

DATA_SETTINGS = ("data", *TaskConfig.of_data)
"""Config fields of tasks that say where their questions come from."""


def with_data(file: CurriculumFile, settings: Mapping[str, Any]) -> CurriculumFile:
    """Replace the data settings of all stages of a curriculum file.

    They apply to tasks and to entries that set data in the file, such as Shisen-Sho with a split of CIFAR-10.

    Raises:
        UsageError: There are other settings, or no entry takes data.
    """
    if others := [name for name in settings if name not in DATA_SETTINGS]:
        raise UsageError(
            f"{others[0]} cannot be set for a curriculum, which sets the difficulty and config fields of its games; "
            f"only {', '.join(DATA_SETTINGS)} can"
        )
    if not settings:
        return file
    # Not all DATA_SETTINGS: boards have columns, too.
    takers = [_is_task(entry.game) or bool({"data", "split"} & entry.overrides.keys()) for entry in file.entries]
    if not any(takers):
        raise UsageError(f"no game of this curriculum takes {next(iter(settings))}")
    entries = (_with(entry, settings) if takes else entry for entry, takes in zip(file.entries, takers))
    return file.model_copy(update={"entries": tuple(entries)})


def _is_task(game: str) -> bool:
    return issubclass(game_class(PRESETS[game].game if game in PRESETS else game), Task)


def _with(entry: EntryFile, settings: Mapping[str, Any]) -> EntryFile:
    stages = (
        stage.model_copy(update={"overrides": {k: v for k, v in stage.overrides.items() if k not in settings}})
        for stage in entry.stages
    )
    return entry.model_copy(update={"overrides": {**entry.overrides, **settings}, "stages": tuple(stages)})
