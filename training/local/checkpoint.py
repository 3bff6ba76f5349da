"""Checkpoints: a Hugging Face model, and beside it what a trainer needs to go on exactly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from pydantic import ValidationError

from training.local.actor import Actor
from vlmgym.curriculum import Progress
from vlmgym.errors import UsageError, one_sentence
from vlmgym.evaluation.files import replace_file, writing
from vlmgym.policies.checkpoint import reason

STEP = "step_{:06d}"
MODEL = "model"
"""Subfolder that holds the Hugging Face model."""


def save_checkpoint(
    folder: Path, step: int, actor: Actor, optimizer: torch.optim.Optimizer, progress: Progress, extra: dict[str, Any]
) -> Path:
    """Write a checkpoint; its name is there once it is whole.

    Args:
        folder: Where checkpoints are.
        step: Steps taken.
        actor: The model.
        optimizer: Its optimizer.
        progress: Of the curriculum.
        extra: Numbers and lists of the trainer.

    Raises:
        OutputError: It cannot be written.
    """
    final = folder / STEP.format(step)
    part = folder / f".{final.name}.part"
    with writing(final):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        actor.save(part / MODEL)
        state = {"actor": actor.trained_state(), "optimizer": optimizer.state_dict(), "step": step, **extra}
        torch.save(state, part / "trainer.pt")
        replace_file(part / "progress.json", progress.model_dump_json().encode())
        for file in part.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
    return final


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of most steps, None if there is none."""
    found = sorted(folder.glob("step_*"))
    return found[-1] if found else None


def drop_old(folder: Path, keep: int) -> None:
    """Remove all but the latest checkpoints."""
    for old in sorted(folder.glob("step_*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(
    checkpoint: Path, actor: Actor, optimizer: torch.optim.Optimizer
) -> tuple[int, Progress, dict[str, Any]]:
    """Put model and optimizer back; the steps taken, the curriculum's progress, and the trainer's numbers.

    Raises:
        UsageError: It cannot be read, or is of another model.
    """
    try:
        state = torch.load(checkpoint / "trainer.pt", map_location=actor.device, weights_only=True)  # no pickled code
        actor.load_trained_state(state.pop("actor"))
        optimizer.load_state_dict(state.pop("optimizer"))
        progress = Progress.model_validate_json((checkpoint / "progress.json").read_text())
    except ValidationError as error:
        raise UsageError(f"{checkpoint}/progress.json cannot be read: {one_sentence(error)}") from None
    except (OSError, EOFError, UnpicklingError, KeyError, ValueError, RuntimeError) as error:
        raise UsageError(f"the checkpoint {checkpoint} cannot be read: {reason(error)}") from None
    return int(state.pop("step")), progress, state
