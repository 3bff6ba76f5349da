"""Resume from an earlier checkpoint: move what was written after it to a separate folder."""

from __future__ import annotations

import re
import shutil
from itertools import count
from pathlib import Path

from vlmgym.records.files import writing
from vlmgym.records.output_folder import MARKER, OutputFolder
from vlmgym.training.plots import read_curve
from vlmgym.training.result import RESULT

NUMBERED = ("checkpoints/step_*", "global_step_*", "rollouts/step_*.jsonl", "rollouts/validation_*.jsonl")
"""Glob patterns for files and folders whose names contain a step number."""
FINAL = (RESULT, "curve.png", "model", "evaluation/after*")
"""Glob patterns for files and folders that describe the run after its last step."""


def set_aside(folder: Path, step: int) -> Path | None:
    """Move everything written after a step to a new folder within the run; return this folder.

    Return None if nothing was written after the step. The metrics file is copied, not moved, because it also contains
    the earlier steps, which the trainer keeps.
    """
    folder = folder.absolute()
    later = [path for pattern in NUMBERED for path in sorted(folder.glob(pattern)) if _step(path) > step]
    curve = folder / "curve.jsonl"
    if not later and not any(row["step"] > step for row in read_curve(curve)):
        return None
    name = f"after_step_{step:06d}"
    names = (name if n == 1 else f"{name}-{n}" for n in count(1))
    aside = next(path for path in map(folder.joinpath, names) if not path.exists())
    for path in (*later, *(path for pattern in FINAL for path in sorted(folder.glob(pattern)))):
        target = aside / path.relative_to(folder)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        for owner in (folder, path.parent):
            if (owner / MARKER).exists():
                OutputFolder(owner).remove(path)  # removes only the list entry: the path was moved
    if curve.exists():
        with writing(aside):
            aside.mkdir(exist_ok=True)
            shutil.copy2(curve, aside / curve.name)
    return aside


def _step(path: Path) -> int:
    return int(re.findall(r"\d+", path.stem)[-1])
