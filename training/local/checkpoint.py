"""Checkpoints: a Hugging Face model or adapters, and beside it what a trainer needs to go on exactly."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError

from training.core.saving import saving
from training.local.actor import MODEL, Actor
from vlmgym.curriculum import Progress
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.policies.checkpoint import error_text
from vlmgym.records.files import replace_file
from vlmgym.records.output_folder import OutputFolder

STEP = "step_{:06d}"


def save_checkpoint(
    folder: Path,
    step: int,
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    extra: dict[str, Any],
    *,
    merged: bool = False,
) -> Path:
    """Write a checkpoint: `model`, or with adapters `adapter`, and what a trainer needs besides.

    Args:
        folder: Where checkpoints are.
        step: Steps taken.
        actor: The model.
        optimizer: Its optimizer.
        progress: Of the curriculum.
        extra: Numbers and lists of the trainer.
        merged: With adapters, write `model` too, the weights with the adapters added.

    Raises:
        OutputError: It cannot be written.
    """
    final = folder.absolute() / STEP.format(step)
    with OutputFolder(folder).building(final) as part:
        actor.save_trained(part)
        if merged and actor.adapters is not None:
            actor.save(part / MODEL)
        critic = None if actor.critic is None else actor.critic.state_dict()
        state = {"critic": critic, "optimizer": optimizer.state_dict(), "step": step, **extra}
        with saving(final):
            torch.save(state, part / "trainer.pt")
        replace_file(part / "progress.json", progress.model_dump_json().encode())
    return final


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of most steps, None if there is none."""
    found = sorted(folder.glob("step_*"))
    return found[-1] if found else None


def drop_old(folder: Path, keep: int) -> None:
    """Remove all but the latest checkpoints."""
    OutputFolder(folder).remove(*sorted(folder.absolute().glob("step_*"))[:-keep])


def load_checkpoint(
    checkpoint: Path, actor: Actor, optimizer: torch.optim.Optimizer
) -> tuple[int, Progress, dict[str, Any]]:
    """Put model and optimizer back; the steps taken, the curriculum's progress, and the trainer's numbers.

    Raises:
        UsageError: It cannot be read, or is of another model.
    """
    try:
        state = torch.load(checkpoint / "trainer.pt", map_location="cpu", weights_only=True)  # no pickled code
        actor.load_trained(checkpoint)
        critic = state.pop("critic")
        if actor.critic is not None:
            actor.critic.load_state_dict(critic)
        optimizer.load_state_dict(state.pop("optimizer"))
        progress = Progress.model_validate_json((checkpoint / "progress.json").read_text())
    except ValidationError as error:
        raise UsageError(f"{checkpoint}/progress.json cannot be read: {describe_validation_error(error)}") from None
    except (OSError, EOFError, UnpicklingError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise UsageError(f"the checkpoint {checkpoint} cannot be read: {error_text(error)}") from None
    return int(state.pop("step")), progress, state
