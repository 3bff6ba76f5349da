"""Trainings that are run once, and kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError

ROOT = Path(__file__).parents[2]


def once(path: Path, find: Callable[[], Any]) -> Any:
    """What was found before and kept in a JSON file; else it is found and kept now."""
    if not path.exists():
        path.write_text(json.dumps(find()))
    return json.loads(path.read_text())


def train(folder: Path, *args: str) -> float:
    """Run a training to its end, or go on with it, unless that was done; the minutes it took.

    Args:
        folder: Of the run.
        args: Options of `training.local.train`.

    Raises:
        UsageError: It failed, or was run with other options before.
    """
    took, options, wanted = folder / "minutes", folder / "options.json", [*args, "--output-dir", str(folder)]
    if options.exists() and json.loads(options.read_text()) != wanted:
        raise UsageError(f"{folder} was run with other options: name another --output-dir, or remove it")
    if not took.exists():
        begun = time.perf_counter()
        known = ["--resume", str(folder)] if options.exists() else wanted
        command = [sys.executable, "-m", "training.local.train", *known]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(command)} failed: {''.join(done.stderr.strip().splitlines()[-1:])}")
        took.write_text(str((time.perf_counter() - begun) / 60))
    return float(took.read_text())
