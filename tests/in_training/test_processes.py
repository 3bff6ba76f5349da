"""Training in several processes: equal to one process, resumable, and ended by the death of a process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.in_training.runs import HERE, NO_EPISODES, QUICK, SFT, SMALL, VARIANTS, curve, fail, main, rollouts
from vlmgym.runs.record import EpisodeRecord
from vlmgym.training import config
from vlmgym.training.config import read_config


def evaluated_responses(run: Path) -> list[list[str]]:
    """Read the responses of each episode in the evaluation before training; empty without an evaluation."""
    files = (run / "evaluation").glob("before/episodes.jsonl")
    records = [EpisodeRecord.model_validate_json(line) for file in files for line in file.read_text().splitlines()]
    records.sort(key=lambda record: (record.game.id, record.seed))
    return [[turn.response for turn in record.turns] for record in records]


@pytest.mark.parametrize("variant", ["ppo, tokens", "distill", "mixture"])
def test_two_processes_train_like_one_and_resume_as_one(
    finished: Callable[[str], Path], model: Path, tmp_path: Path, variant: str
) -> None:
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(model), *VARIANTS[variant], "--output-dir", str(run)]
    main([*args, "--processes", "2", "--steps", "2"])
    main(["--resume", str(run), "--processes", "1", "--steps", "3"])
    for ours, theirs in zip(curve(run), curve(finished(variant)), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert [each.turns for each in rollouts(run)] == [each.turns for each in rollouts(finished(variant))]
    responses = evaluated_responses(run)
    assert responses == evaluated_responses(finished(variant))
    assert bool(responses) == (variant == "mixture")
    assert not multiprocessing.active_children()


def test_supervised_fine_tuning_in_two_processes(model: Path, tmp_path: Path) -> None:
    """Prompts without images give the vision encoder no gradients, so its weights must not decay either."""
    weights = []
    for processes in ("1", "2"):
        run = tmp_path / processes
        args = [*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, *SFT, "--steps", "0", "--evaluation.states", "0"]
        args += ["--processes", processes, "--sft.control-steps", "1", "--observation", "text"]
        main([*args, "--output-dir", str(run)])
        weights.append(load_file(run / "model" / "model.safetensors"))
    before = load_file(model / "model.safetensors")
    moved = max((weights[0][name] - before[name]).abs().max() for name in before)
    for name in before:
        torch.testing.assert_close(weights[1][name], weights[0][name], rtol=0, atol=0.05 * float(moved))
    changed = {name.startswith("model.visual") for name in before if not before[name].equal(weights[1][name])}
    assert changed == {False}


@pytest.mark.parametrize(
    ("victim", "message"),
    [
        ("a process", "died (exit code -9); if memory is full, lower --processes; "),
        ("the run", "interrupted; --resume {run} "),
    ],
)
def test_a_killed_process_or_an_interrupt_ends_all(model: Path, tmp_path: Path, victim: str, message: str) -> None:
    run = tmp_path / "run"
    args = [*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, "--evaluation.states", "0", "--steps", "100000"]
    command = [sys.executable, "-m", "vlmgym", "train", *args, "--processes", "2", "--output-dir", str(run)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=HERE.parents[1]) as process:
        deadline = time.monotonic() + 300
        while not (run / "curve.jsonl").exists() or not curve(run):
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        (worker,) = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
        os.kill(*((worker.pid, signal.SIGKILL) if victim == "a process" else (process.pid, signal.SIGINT)))
        stderr = process.communicate(timeout=120)[1].decode()
    assert process.returncode == {"a process": 1, "the run": 130}[victim]
    assert message.format(run=run) in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert not psutil.wait_procs(children, timeout=60)[1]


def test_more_processes_than_states_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    code, message = fail(capsys, *QUICK, "--processes", "3")
    assert (code, message) == (2, "error: processes must be at most 2, the number of states of a step, got 3")


def test_processes_need_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    code, message = fail(capsys, *QUICK, "--processes", "2", "--device", "cuda:1")
    assert (code, message) == (2, "error: processes above 1 need the CPU, not cuda:1: add --device cpu")


@pytest.mark.parametrize(
    ("options", "cores", "processes"),
    [([], 4, 2), ([], 1, 1), (["--batch-size", "8"], 4, 1), (["--device", "cuda"], 4, 1), (["--processes", "4"], 1, 4)],
)
def test_the_number_of_processes_fits_the_machine_and_the_step(
    monkeypatch: pytest.MonkeyPatch, options: list[str], cores: int, processes: int
) -> None:
    monkeypatch.setattr(config, "available_cores", lambda: cores)
    assert read_config(["--device", "cpu", "--preset", "tiny", *options]).num_processes == processes
