"""Trainings that are run once, and kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from vlmgym.errors import UsageError

ROOT = Path(__file__).parents[2]


def train(folder: Path, *args: str) -> float:
    """Run a training to its end, or go on with it, unless that was done; the minutes it took.

    Args:
        folder: Of the run.
        args: Options of `training.local.train`.

    Raises:
        UsageError: It failed, or was run with other options before.
    """
    took, asked = folder / "minutes", folder.with_name(f"{folder.name}.json")
    if asked.exists() and json.loads(asked.read_text()) != [*args]:
        raise UsageError(f"{folder} was run with other options: name another --out, or remove it and {asked.name}")
    asked.write_text(json.dumps(args))
    if not took.exists():
        begun = time.perf_counter()
        known = ["--resume", str(folder)] if (folder / "options.json").exists() else [*args, "--out", str(folder)]
        command = [sys.executable, "-m", "training.local.train", *known]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(command)} failed: {''.join(done.stderr.strip().splitlines()[-1:])}")
        took.write_text(str((time.perf_counter() - begun) / 60))
    return float(took.read_text())
