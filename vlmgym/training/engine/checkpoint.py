"""Checkpoints: the model or its adapters, and the state from which training resumes exactly."""

from __future__ import annotations

import shutil
from pathlib import Path
from pickle import UnpicklingError

import torch
from pydantic import ValidationError
from safetensors import SafetensorError

from vlmgym.curriculum import Progress
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.policies.checkpoint import error_text
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import replace_file, replace_folder, writing
from vlmgym.training.engine.actor import MODEL, Actor
from vlmgym.training.engine.weights import saving

STATE = "trainer.pt"
"""Name of the checkpoint file with the trainer's state."""


def save_checkpoint(
    folder: Path,
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    rewards: list[float],
    trained: TrainedRecord,
    *,
    merged: bool = False,
) -> None:
    """Write a checkpoint of the step that `trained` names.

    The folder contains `model`; with LoRA, it contains `adapter` instead and, if `merged`, also `model`. `rewards` are
    those of the last episodes. `trained` is written to the folder and to `model`.
    """
    checkpoint = folder.absolute() / f"step_{trained.step:06d}"
    with replace_folder(checkpoint) as part:
        actor.save_trained(part)
        if merged and actor.adapters is not None:
            actor.save(part / MODEL)
        critic = None if actor.critic is None else actor.critic.state_dict()
        state = {"critic": critic, "optimizer": optimizer.state_dict(), "step": trained.step, "rewards": rewards}
        with saving(checkpoint):
            torch.save(state, part / STATE)
        replace_file(part / "progress.json", progress.model_dump_json().encode())
        trained.write(part)
        if (part / MODEL).is_dir():
            trained.write(part / MODEL)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest checkpoint in a folder, or None."""
    return max(folder.glob("step_*"), default=None)


def drop_old_checkpoints(folder: Path, keep: int) -> None:
    """Remove all checkpoints in a folder except the latest `keep`."""
    for checkpoint in sorted(folder.glob("step_*"))[:-keep]:
        with writing(checkpoint):
            shutil.rmtree(checkpoint)


def load_checkpoint(
    checkpoint: Path, actor: Actor, optimizer: torch.optim.Optimizer
) -> tuple[int, Progress, list[float]]:
    """Load a checkpoint into model and optimiser; return the number of steps, the curriculum's progress and `rewards`.

    Raises:
        UsageError: The checkpoint is damaged or does not fit the model.
    """
    try:
        state = torch.load(checkpoint / STATE, map_location="cpu", weights_only=True)  # runs no pickled code
        actor.load_trained(checkpoint)
        if actor.critic is not None:
            actor.critic.load_state_dict(state["critic"])
        optimizer.load_state_dict(state["optimizer"])
        progress = Progress.model_validate_json((checkpoint / "progress.json").read_text())
        return int(state["step"]), progress, state["rewards"]
    except ValidationError as error:
        raise UsageError(f"cannot read {checkpoint}/progress.json: {describe_validation_error(error)}") from None
    except (OSError, EOFError, UnpicklingError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise UsageError(f"cannot read the checkpoint {checkpoint}: {error_text(error)}") from None
