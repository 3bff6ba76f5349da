"""Preflight checks of the checkpoint that a run resumes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from verl.utils.checkpoint import CHECKPOINT_TRACKER, find_latest_ckpt

from training.easyr1.config import RunConfig
from training.easyr1.prompt_stream import PromptStream
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError

ROWS = "dataloader.pt"
"""Saved state of `PromptStream`."""
FILES = ("model", "optim", "extra_state")
"""Files of each process; with `save_model_only` only the first."""


def check_checkpoint(config: RunConfig, curriculum: Curriculum) -> Iterator[str]:
    """Check that the checkpoint that EasyR1 would load exists and belongs to the same kind of run."""
    trainer, named = config.trainer, config.trainer.load_checkpoint_path
    if named is None and trainer.find_last_checkpoint:
        tracker = Path(str(trainer.save_checkpoint_path)) / CHECKPOINT_TRACKER
        named, _ = find_latest_ckpt(trainer.save_checkpoint_path)
        if named is None and tracker.exists():  # EasyR1 would start over
            yield f"{tracker} names no checkpoint: set trainer.load_checkpoint_path to one, or choose another OUT"
    if named is None:
        return
    folder, ranks = Path(named), trainer.n_gpus_per_node * trainer.nnodes
    files = [f"{part}/{file}_world_size_{ranks}_rank_0.pt" for part in config.trained for file in FILES]
    if not folder.name.startswith("global_step_"):
        yield f"trainer.load_checkpoint_path={folder} must be a folder named global_step_N"
    elif missing := [name for name in (*files, ROWS) if not (folder / name).is_file()]:
        why = "it was saved with another number of GPUs, without a critic, or with trainer.save_model_only"
        yield f"cannot resume from {folder}, which has no {missing[0]}: {why}"
    else:
        try:
            PromptStream(curriculum, config.data.seed, 1).load_state_dict(torch.load(folder / ROWS, weights_only=True))
        except UsageError as error:
            yield f"cannot resume from {folder}: {error}"
        except Exception:  # torch raises almost anything for a damaged file
            yield f"cannot resume from {folder}: its {ROWS} is damaged"
