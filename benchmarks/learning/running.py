"""Run each training once and cache its results."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vlmgym.cli.main import run_train
from vlmgym.errors import UsageError
from vlmgym.runs.record import TurnRecord

ROOT = Path(__file__).parents[2]


def once(path: Path, find: Callable[[], Any]) -> Any:
    """Return the value in a JSON file; if there is no file, compute the value and write it first."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps(find()))
        part.replace(path)  # so that no other process reads half of it
    return json.loads(path.read_text())


def train(folder: Path, *args: str) -> float:
    """Run or resume a training run unless it is finished; return its duration in minutes (if resumed, only since then).

    Args:
        folder: Folder of the run.
        args: Options of `vlmgym train`.

    Raises:
        UsageError: The training failed, or the folder contains a run with other options.
    """
    duration, started, expected = folder / "minutes", folder.with_name(f"{folder.name}.json"), [*args]
    if started.exists() and json.loads(started.read_text()) != expected:
        raise UsageError(f"{folder} was run with other options: choose another --output-dir, or remove it")
    if not duration.exists():
        start = time.perf_counter()
        resumes = (folder / "config.json").exists()
        options = ["--resume", str(folder)] if resumes else [*expected, "--output-dir", str(folder)]
        folder.parent.mkdir(parents=True, exist_ok=True)
        started.write_text(json.dumps(expected))
        command = [sys.executable, "-m", "vlmgym", "train", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(command)} failed: {''.join(done.stderr.strip().splitlines()[-1:])}")
        duration.write_text(str((time.perf_counter() - start) / 60))
    return float(duration.read_text())


def train_here(folder: Path, *args: str) -> float:
    """Run or resume a training run in this process unless it is finished, which saves the time of starting another.

    Returns:
        Its CPU time in minutes; if resumed, only since then.
    """

    def run() -> float:
        start = time.process_time()
        resumes = (folder / "config.json").exists()
        run_train(["--resume", str(folder)] if resumes else [*args, "--output-dir", str(folder)])
        return (time.process_time() - start) / 60

    folder.parent.mkdir(parents=True, exist_ok=True)
    minutes: float = once(folder.with_name(f"{folder.name}-cpu.json"), run)
    return minutes


def sampled_and_greedy(model: Path, args: Sequence[str], states: int) -> Iterator[tuple[str, list[TurnRecord]]]:
    """Yield the turns of a model in the validation states of a seed: `sampled` at temperature 1, then `greedy`."""
    from vlmgym.training.config import read_config
    from vlmgym.training.engine.actor import Actor  # imports torch
    from vlmgym.training.validation import validate, validation_episodes

    config = read_config(args)
    curriculum, actor = config.make_curriculum(), Actor(model, config.model)
    for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        episodes = validation_episodes(config, curriculum, curriculum.begin(), states)
        validate(actor, config, episodes, temperature=temperature)
        yield name, [episode.turns[0] for episode in episodes]
