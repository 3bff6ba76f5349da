"""Record the settings that an EasyR1 checkpoint was trained with, and check whether a run may resume from it."""

from __future__ import annotations

from pathlib import Path

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.rollout.trained import TRAINED, TrainedRecord
from vlmgym.runs.record import changes
from vlmgym.training.easyr1.config import RunConfig
from vlmgym.training.easyr1.section import Section
from vlmgym.training.records import make_trained_record

FIXED = {"trainer", "curriculum", "reward", "prompts", "max_turns"}
FIXED |= {"temperature", "top_p", "max_tokens"}
"""Fields that must not change when a run is resumed."""


def trained_record(
    config: RunConfig, section: Section, curriculum: Curriculum, progress: Progress, step: int, chat_template: str
) -> TrainedRecord:
    """Describe the games and settings that the checkpoint of a step was trained with."""
    rollout = config.worker.rollout
    return make_trained_record(
        curriculum,
        progress,
        section.play,
        section.states,
        section.reward,
        trainer=f"easyr1 {config.algorithm.adv_estimator}",
        step=step,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        max_tokens=config.data.max_response_length,
        chat_template=chat_template,
    )


def changed_settings(checkpoint: Path, config: RunConfig, section: Section, curriculum: Curriculum) -> list[str]:
    """List changes since a checkpoint (`max_turns was 1 and is 8`); raise `UsageError` if its record is invalid."""
    if not (checkpoint / TRAINED).exists():
        return []
    after = trained_record(config, section, curriculum, curriculum.begin(), 0, "")
    old, new = (each.model_dump(mode="json", include=FIXED) for each in (TrainedRecord.read(checkpoint), after))
    return [str(change) for change in changes(old, new)]
