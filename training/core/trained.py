"""What a checkpoint was trained on, for `vlmgym eval --as-trained`."""

from __future__ import annotations

from typing import Any

from training.core.states import PlayConfig
from vlmgym.curriculum import Curriculum, Progress
from vlmgym.records.episode import GameRecord
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, StateConfig, split_questions
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.sandbox.core.reward import RewardConfig


def make_trained_record(
    curriculum: Curriculum,
    progress: Progress,
    play: PlayConfig,
    states: StateConfig,
    reward: RewardConfig,
    **sampling_and_trainer: Any,
) -> TrainedRecord:
    """Describe a checkpoint; further arguments are fields of `TrainedRecord`."""
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
