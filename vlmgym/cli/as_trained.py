"""`vlmgym eval --as-trained CHECKPOINT`: options and games from the `vlmgym.json` of a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from vlmgym.cli.policy_options import option_value
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.policies import options_type
from vlmgym.rollout.runner import Games
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.record import allow_data
from vlmgym.sandbox.core.config import parse_config_fields
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.options import GameOptions

MODEL_FOLDERS = ("", "model")
"""Folders that may contain the model, relative to the checkpoint."""


def with_trained_options(args: Sequence[str], checkpoint: Path) -> list[str]:
    """Insert the options of a checkpoint before the options of the command line, which override them.

    Sampling options are only inserted if the policy has them, and the model only if the policy loads checkpoints.

    Raises:
        UsageError: The checkpoint has no valid `vlmgym.json`.
    """
    record = TrainedRecord.read(checkpoint)
    options = [f"--max-turns={record.max_turns}", f"--seed={record.first_seed}"]
    for name, value in dataclasses.asdict(record.prompts).items():
        option = f"--{name.replace('_', '-')}"
        if value is not None and value is not False:
            options.append(option if value is True else f"{option}={value}")
    for name, value in record.reward.model_dump().items():
        if value != getattr(RewardConfig(), name):
            options.append(f"--reward.{name.replace('_', '-')}={value}")
    accepted = {field.name for field in dataclasses.fields(options_type(option_value("--policy", args) or "random"))}
    for name in ("temperature", "top_p", "max_tokens"):
        if name in accepted and getattr(record, name) is not None:
            options.append(f"--{name.replace('_', '-')}={getattr(record, name)}")
    if "dtype" in accepted:  # the policy loads a checkpoint
        found = (folder for name in MODEL_FOLDERS if ((folder := checkpoint / name) / "config.json").is_file())
        options += [f"--model={folder}" for folder in found]
    return [*options, *args]


def trained_games(record: TrainedRecord, full_curriculum: bool, config: EvalConfig) -> Games:
    """Make the games of a checkpoint, or its full curriculum.

    Raises:
        UsageError: Another option changes the games, the model was trained on grey images, or there are more
            episodes than questions held out for validation.
    """
    data = parse_config_fields(chain.from_iterable(config.overrides))
    if [*data] == ["data"]:  # names the data of the record, so that it may be opened
        allow_data(str(data["data"]))
        config = dataclasses.replace(config, overrides=())
    if any(getattr(config, field.name) != field.default for field in dataclasses.fields(GameOptions)):
        options = "--size, --perception, --reasoning, --strict, --config"
        raise UsageError(f"--as-trained sets the difficulty of the games: leave out {options}")
    if record.blank:
        raise UsageError("the checkpoint was trained on grey images, which an evaluation does not show")
    kept = record.validation_questions
    if kept is not None and config.seed <= record.first_seed and not config.all_rows and config.episodes > kept:
        raise UsageError(f"{kept:,} questions were held out for validation: lower --episodes {config.episodes:,}")
    return record.full_curriculum() if full_curriculum else record.reached_games()
