"""Whether the checkpoint that a run would go on from fits it, which EasyR1 finds out when the models are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from verl.utils.checkpoint import CHECKPOINT_TRACKER, find_latest_ckpt

from training.easyr1.config import RunConfig
from training.easyr1.rows import RowStream
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError

ROWS = "dataloader.pt"
"""What `RowStream` saves."""
FILES = ("model", "optim", "extra_state")
"""That each process saves; with `save_model_only` there is only the first."""


def checkpoint_problems(config: RunConfig, curriculum: Curriculum) -> Iterator[str]:
    """What speaks against going on, as `RayPPOTrainer._load_checkpoint` would.

    Args:
        config: Of `read_config`.
        curriculum: Of its section `vlmgym`.
    """
    trainer = config.trainer
    named = trainer.load_checkpoint_path
    if named is None and trainer.find_last_checkpoint:
        tracker = Path(str(trainer.save_checkpoint_path)) / CHECKPOINT_TRACKER
        choose = "set trainer.load_checkpoint_path to the last folder global_step_ beside it"
        try:
            named, _ = find_latest_ckpt(trainer.save_checkpoint_path)
        except (ValueError, LookupError, TypeError):
            yield f"{tracker} cannot be read: {choose}"
        else:
            if named is None and tracker.exists():  # EasyR1 would begin anew
                yield f"{tracker} names a folder that is not there: {choose}, or name another OUT to begin anew"
    if named is None:
        return
    folder = Path(named)
    if not folder.name.startswith("global_step_"):
        yield f"trainer.load_checkpoint_path={folder} is no checkpoint: its name is global_step_ and a number"
        return
    instead = "leave out trainer.load_checkpoint_path" if trainer.load_checkpoint_path else "name another OUT"
    anew = f"{instead} to begin anew"
    gpus = trainer.n_gpus_per_node * trainer.nnodes
    wanted = [f"{part}/{file}_world_size_{gpus}_rank_0.pt" for part in config.trained for file in FILES]
    if lacks := [name for name in (*wanted, ROWS) if not (folder / name).is_file()]:
        yield (
            f"the run would go on from {folder}, which has no {lacks[0]}: it was saved with another number of GPUs, "
            f"without a critic, or by trainer.save_model_only; {anew}"
        )
        return
    try:
        state = torch.load(folder / ROWS, weights_only=True)
        RowStream(curriculum, config.data.seed, 1).load_state_dict(state)
    except UsageError as error:
        yield f"the run would go on from {folder}, and {error}; {anew}"
    except Exception:  # at a file that is damaged, or of something else, torch raises whatever comes
        yield f"the run would go on from {folder}, whose {ROWS} cannot be read: {anew}"
