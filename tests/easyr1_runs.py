"""Kill, read and evaluate runs of EasyR1's trainer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.processes import no_process_left
from tests.serving import variables
from tests.training import ROOT, VARIABLES
from vlmgym.evaluation import Run, RunFolder, read_run
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
        if process.poll() is None:
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


def evaluate_exported(export: list[str], checkpoint: Path, baseline: Path, folder: Path) -> tuple[Run[Any], Run[Any]]:
    """Convert a checkpoint with the command `export`, play two episodes with it and its baseline, and compare them.

    These are the commands of docs/training.md. Returns the evaluations of both models.
    """

    def run(*command: str | Path) -> str:
        environment = variables(OUT=str(folder / "out"), VLLM_CACHE_ROOT=str(folder / "cache"))
        done = subprocess.run(
            [*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    model = folder / "model"
    assert f"evaluate.sh {model}" in run(*export, checkpoint, model)
    assert (model / "vlmgym.json").read_bytes() == (checkpoint / "vlmgym.json").read_bytes()
    script, options = ROOT / "training" / "scripts" / "evaluate.sh", ("--videos", "0", "--no-report")
    with no_process_left() as mark:
        run(*mark, "bash", script, model, baseline, "2", *options)
    comparison = json.loads((folder / "out" / "compare" / "compare.json").read_text())
    assert comparison["games"]["2048-v0"]["pairs"] == 2
    trained, other = (read_run(RunFolder(folder / "out" / name)) for name in ("trained", "baseline"))
    assert (trained.config.policy.model, other.config.policy.model) == ("trained", "baseline")
    return trained, other
