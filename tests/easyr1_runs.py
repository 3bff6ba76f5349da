"""Kill and read runs of EasyR1's trainer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.training import ROOT, VARIABLES
from vlmgym.runs.record import EpisodeRecord


def kill_after_checkpoint(command: list[str], run: Path, step: int) -> None:
    """Start all runs, and kill the process in the middle of a step of the last run, after the checkpoint of `step`.

    EasyR1 logs the metrics of a step after its checkpoint, so this waits for both.
    """
    log = run.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **VARIABLES}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until = time.monotonic() + 3600
        while last_step(run) != step or metrics(run)[-1]["step"] < step:
            assert process.poll() is None, log.read_text(errors="replace")[-6000:]
            assert time.monotonic() < until, "no checkpoint"
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert last_step(run) == step
    (run / "rollouts" / f"step_{step + 1:06d}.jsonl").unlink(missing_ok=True)


def last_step(run: Path) -> int | None:
    """Return the step of the last complete checkpoint."""
    try:
        step: int = json.loads((run / "checkpoint_tracker.json").read_text())["last_global_step"]
    except (FileNotFoundError, ValueError):
        return None
    return step


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]


def records(run: Path, name: str) -> list[EpisodeRecord]:
    return [EpisodeRecord.model_validate_json(line) for line in (run / "rollouts" / name).read_text().splitlines()]
