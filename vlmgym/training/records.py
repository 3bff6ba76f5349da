"""Training records: rollouts in the format of evaluations, and the settings that a checkpoint was trained with."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, StateConfig, split_questions
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import check_output_folder, json_bytes, write_file, writing
from vlmgym.runs.record import GameRecord, PolicyRecord, RunRecord, now, versions
from vlmgym.runs.run import RUN
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.plots import read_curve
from vlmgym.training.result import RESULT
from vlmgym.training.states import MultiTurnConfig

NUMBERED = ("checkpoints/step_*", "global_step_*", "rollouts/step_*.jsonl", "rollouts/validation_*.jsonl")
"""Glob patterns for files and folders whose names contain a step number."""
FINAL = (RESULT, "curve.png", "model", "evaluation/after*")
"""Glob patterns for files and folders that describe the run after its last step."""


def begin_rollout_records(
    folder: Path,
    curriculum: Curriculum,
    policy: PolicyRecord,
    play: MultiTurnConfig,
    reward: RewardConfig,
    episodes: int,
) -> None:
    """Create a run folder for rollouts, which `vlmgym report` can read.

    Raises:
        UsageError: The folder has files, but no `run.json`.
    """
    config = RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, curriculum.games)),
        policy=policy,
        reward=reward,
        prompts=play.prompts,
        max_turns=play.max_turns,
        seed=0,
        episodes=episodes,
        options={},
    )
    check_output_folder(folder, RUN)
    write_file(folder / RUN, json_bytes(config))


def write_rollout_records(folder: Path, name: str, records: Iterable[str]) -> None:
    """Write episode records, given as JSON, to `NAME.jsonl`."""
    write_file(folder / f"{name}.jsonl", (record.encode() + b"\n" for record in records))


def set_aside(folder: Path, step: int) -> Path | None:
    """Move everything written after a step to a new folder within the run; return this folder.

    Return None if nothing was written after the step. The metrics file is copied, not moved, because it also contains
    the earlier steps, which the trainer keeps.
    """
    later = [path for pattern in NUMBERED for path in sorted(folder.glob(pattern)) if _step(path) > step]
    curve = folder / "curve.jsonl"
    if not later and not any(row["step"] > step for row in read_curve(curve)):
        return None
    name = f"after_step_{step:06d}"
    names = (name if n == 1 else f"{name}-{n}" for n in count(1))
    aside = next(path for path in map(folder.joinpath, names) if not path.exists())
    for path in (*later, *(path for pattern in FINAL for path in sorted(folder.glob(pattern)))):
        target = aside / path.relative_to(folder)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    if curve.exists():
        with writing(aside):
            aside.mkdir(exist_ok=True)
            shutil.copy2(curve, aside / curve.name)
    return aside


def _step(path: Path) -> int:
    return int(re.findall(r"\d+", path.stem)[-1])


def make_trained_record(
    curriculum: Curriculum,
    progress: Progress,
    play: MultiTurnConfig,
    states: StateConfig,
    reward: RewardConfig,
    **sampling_and_trainer: Any,
) -> TrainedRecord:
    """Describe what a checkpoint was trained on, for `vlmgym eval --as-trained`.

    `sampling_and_trainer` has the remaining fields of `TrainedRecord`.
    """
    reached = [entry.stages[state.stage] for entry, state in zip(curriculum.entries, progress.entries)]
    splits = [split_questions(stage.game, states.validation_fraction) for stage in reached]
    return TrainedRecord(
        games=tuple(GameRecord.of(stage.game) for stage in reached),
        stages=tuple(stage.name for stage in reached),
        curriculum=curriculum.to_data(),
        reward=reward,
        prompts=play.prompts,
        max_turns=play.max_turns,
        first_seed=FIRST_VALIDATION_SEED,
        validation_questions=min((len(split.validation) for split in splits if split is not None), default=None),
        **sampling_and_trainer,
    )
