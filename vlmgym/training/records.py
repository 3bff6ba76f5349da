"""Training records: rollouts in the format of evaluations, and the settings that a checkpoint was trained with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.records.episode import GameRecord, PolicyRecord, now, versions
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import RunRecord
from vlmgym.records.run_folder import RunFolder
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, StateConfig, split_questions
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.states import MultiTurnConfig


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
        UsageError: The folder is not empty, and has no list of files that vlmgym wrote.
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
    run = RunFolder(folder)
    run.output.check_own()
    run.write_config(config)


def write_rollout_records(folder: Path, name: str, records: Iterable[str]) -> None:
    """Write episode records, given as JSON, to `NAME.jsonl`.

    Raises:
        UsageError: The file exists and was not written by vlmgym.
    """
    output = OutputFolder(folder)
    output.write(output.folder / f"{name}.jsonl", (record.encode() + b"\n" for record in records))


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
