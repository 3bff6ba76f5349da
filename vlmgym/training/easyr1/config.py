"""Settings of a run: EasyR1's and the section `vlmgym`, and what of them a checkpoint records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from verl.trainer.config import PPOConfig

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError, first_line
from vlmgym.rollout.trained import TRAINED, TrainedRecord
from vlmgym.runs.record import changes
from vlmgym.training.easyr1.settings import Section, merge_settings
from vlmgym.training.records import make_trained_record


@dataclass
class RunConfig(PPOConfig):
    """EasyR1's configuration, extended with a `vlmgym` section."""

    vlmgym: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> dict[str, Any]:
        """Settings of the trained parts of `worker`, keyed by name: the actor and, if used, the critic."""
        worker = self.worker
        critic = {"critic": worker.critic} if self.algorithm.adv_estimator == "gae" else {}
        return {"actor": worker.actor, **critic}


def read_config(args: Sequence[str]) -> RunConfig:
    """Merge YAML files, then settings such as `a.b=value`; raise `UsageError` if any of them is invalid."""
    merged = merge_settings(args, OmegaConf.structured(RunConfig()))
    try:
        config: RunConfig = OmegaConf.to_object(merged)
        for name, path in (
            ("trainer.load_checkpoint_path", config.trainer.load_checkpoint_path),
            ("data.override_chat_template", config.data.override_chat_template),
        ):
            if path is not None and not Path(path).exists():  # EasyR1 would ignore it (utils/py_functional.py)
                raise UsageError(f"{name}={path}: no such file or folder")
        critic, actor = config.worker.critic.model, config.worker.actor.model
        critic.model_path = critic.model_path or actor.model_path
        config.deep_post_init()
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise UsageError(first_line(error)) from None
    return config


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
