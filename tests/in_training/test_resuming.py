"""Resumed training runs, and the files of a run folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.in_training.runs import HERE, NO_EPISODES, QUICK, SFT, SMALL, VARIANTS, curve, fail, main, read, rollouts
from vlmgym.runs.files import output_folder
from vlmgym.training.run import TrainingRun

Run = Callable[[str], Path]


def assert_same(run: Path, other: Path) -> None:
    """Check that metrics, weights, rollouts and results of two runs are equal, bit for bit."""
    assert curve(run) == curve(other)
    weights, others = load_file(run / "model" / "model.safetensors"), load_file(other / "model" / "model.safetensors")
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert [record.turns for record in rollouts(run)] == [record.turns for record in rollouts(other)]
    ours, theirs = read(run / "result.json"), read(other / "result.json")
    for name in ("final_reward", "total_steps", "total_episodes"):
        assert ours[name] == theirs[name]
    for when in ("before", "after"):
        assert ours["validation"][when]["states"] == theirs["validation"][when]["states"]


@pytest.mark.parametrize("variant", ["ppo, tokens", "lora, bfloat16", "curriculum", "distill"])
def test_resumed_runs_equal_uninterrupted_ones(finished: Run, model: Path, tmp_path: Path, variant: str) -> None:
    run = tmp_path / "run"
    main([*QUICK, "--model", str(model), *VARIANTS[variant], "--steps", "2", "--output-dir", str(run)])
    main(["--resume", str(run), "--steps", "3"])
    assert_same(run, finished(variant))


def test_killed_runs_resume(model: Path, tmp_path: Path) -> None:
    args = [*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, *SFT, "--update.kl-coef", "0.1"]
    args += ["--steps", "4", "--checkpoint-interval", "2"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "vlmgym", "train", *args, "--output-dir", str(killed)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=HERE.parents[1])
    deadline = time.monotonic() + 300
    while not (killed / "curve.jsonl").exists() or len(curve(killed)) < 3:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "result.json").exists()
    with (killed / "curve.jsonl").open("a") as file:
        file.write('{"step": 99, "rew')  # a truncated line
    main(["--resume", str(killed)])
    main([*args, "--output-dir", str(whole)])
    assert_same(killed, whole)
    kept = sorted(path.name for path in (killed / "checkpoints").glob("[!.]*"))
    assert kept == ["step_000002", "step_000004"]


def test_finished_runs_can_be_extended(finished: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("blank"), run)
    main(["--resume", str(run), "--steps", "4"])
    assert [row["step"] for row in curve(run)] == [1, 2, 3, 4]
    assert curve(run)[:3] == curve(finished("blank"))
    ours, theirs = (read(each / "result.json") for each in (run, finished("blank")))
    assert ours["validation"]["before"] == theirs["validation"]["before"]


def test_named_checkpoints_resume_and_later_steps_are_put_aside(finished: Run, tmp_path: Path) -> None:
    """A run with checkpoints 2 and 3 is resumed from 2. It repeats step 3 exactly; the old files are set aside."""
    whole, run = finished("grpo"), tmp_path / "run"
    shutil.copytree(whole, run)
    main(["--resume", str(run / "checkpoints" / "step_2"), "--steps", "4"])
    assert [row["step"] for row in curve(run)] == [1, 2, 3, 4]
    assert curve(run)[:3] == curve(whole)
    assert [record.seed for record in rollouts(run)] == list(range(24))
    result = read(run / "result.json")
    assert (result["total_steps"], result["total_episodes"], result["final_episodes"]) == (4, 24, 24)
    aside = run / "after_step_000002"
    kept = ["checkpoints/step_000003/trainer.pt", "rollouts/step_000003.jsonl", "result.json", "curve.jsonl"]
    for name in (*kept, "model/model.safetensors", "model/vlmgym.json"):
        assert (aside / name).read_bytes() == (whole / name).read_bytes(), name
    main(["--resume", str(run / "checkpoints" / "step_000003")])  # a checkpoint of the new steps
    assert curve(run) == curve(run / "after_step_000003")
    assert len(curve(run)) == 4


def test_resume_options_about_memory_are_accepted_and_kept(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished("blank"), run)
    config = read(run / "config.json")
    assert fail(capsys, f"--resume={run}", "--device", "banana")[0] == 2
    assert read(run / "config.json") == config
    args = ["--steps", "4", "--update.micro-batch-size", "1", "--rollout.batch-size", "2", "--gradient-checkpointing"]
    for _ in range(2):
        main([f"--resume={run}", *args])
    settings = read(run / "config.json")["settings"]
    assert (settings["steps"], settings["rollout"]["batch_size"]) == (4, 2)


@pytest.mark.parametrize(
    ("args", "change"),
    [
        (("--seed", "1"), "seed was 0 and is 1"),
        (("--update.lr", "0.5"), "update.lr was 0.001 and is 0.5"),
        (("--algorithm", "ppo"), "algorithm was 'grpo' and is 'ppo'"),
        (("--config", "similarity=0.5"), "games.0.config.similarity was 0.1 and is 0.5"),
    ],
)
def test_resume_options_that_affect_results_are_rejected(
    finished: Run, capsys: pytest.CaptureFixture[str], args: Sequence[str], change: str
) -> None:
    code, message = fail(capsys, "--resume", str(finished("blank")), *args)
    assert (code, message.rpartition(": ")[2]) == (2, change)


def test_edited_curricula_of_a_run_are_rejected(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, edited = tmp_path / "run", tmp_path / "curriculum.toml"
    shutil.copytree(finished("curriculum"), run)
    edited.write_text((HERE / "curriculum.toml").read_text())
    config = (run / "config.json").read_text()
    (run / "config.json").write_text(config.replace(str(HERE / "curriculum.toml"), str(edited)))
    TrainingRun.reopen(run, [])  # a moved copy is accepted
    edited.write_text(edited.read_text().replace("episodes = 1", "episodes = 4"))
    code, message = fail(capsys, "--resume", str(run))
    assert code == 2
    assert message.endswith("stages.0.episodes was 1 and is 4")


def test_settings_of_a_run_do_not_depend_on_the_preset(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset, run = tmp_path / "preset.toml", tmp_path / "run"
    preset.write_text((HERE / "quick.toml").read_text())
    args = ["--preset", str(preset), "--model", str(model), *SMALL, *NO_EPISODES, "--steps", "1"]
    main([*args, "--output-dir", str(run)])
    preset.unlink()
    main(["--resume", str(run), "--steps", "2"])
    assert len(curve(run)) == 2
    assert "remove --preset" in fail(capsys, "--resume", str(run), "--preset", "tiny")[1]


# Files ----------------------------------------------------------------------------------------------------------------


def test_occupied_output_folders_are_rejected(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished("blank")
    code, message = fail(capsys, *QUICK, "--output-dir", str(run))
    assert (code, f"{run} contains a training run" in message) == (2, True)
    (tmp_path / "file").write_text("")
    assert "/file is a file" in fail(capsys, *QUICK, "--output-dir", str(tmp_path / "file"))[1]
    code, message = fail(capsys, "--resume", str(run), "--output-dir", str(tmp_path / "elsewhere"))
    assert (code, "remove --output-dir" in message) == (2, True)
    with output_folder(run, "config.json"):
        code, message = fail(capsys, "--resume", str(run))
    assert (code, f"another run is writing to {run}" in message) == (1, True)


@pytest.mark.parametrize(
    "file", ["notes.txt", "config.json", "curve.png", "checkpoints/step_000002/model.safetensors", "model/x"]
)
def test_folders_with_foreign_files_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str) -> None:
    path = tmp_path / "run" / file
    path.parent.mkdir(parents=True)
    path.write_text("foreign")
    assert fail(capsys, *QUICK, "--output-dir", str(tmp_path / "run"))[0] == 2
    assert [each for each in (tmp_path / "run").rglob("*") if each.is_file()] == [path]
    assert path.read_text() == "foreign"


def test_failed_options_can_be_corrected_in_the_same_folder(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*QUICK, *SMALL, *NO_EPISODES, "--steps", "1", "--output-dir", str(tmp_path / "run")]
    code, message = fail(capsys, *args, *SFT, "--seed", "5", "--device", "banana")
    assert (code, "device banana" in message) == (2, True)
    assert fail(capsys, *args, "--model", str(tmp_path))[0] == 2
    code, message = fail(capsys, *args, "--model", str(model), *SFT[:-1], "sft.gate=0.9")
    assert (code, "sft.gate of 90%" in message) == (1, True)
    assert not (tmp_path / "run" / "rollouts").exists()
    main([*args, "--model", str(model)])


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Use Weights & Biases without an account; afterwards, tear it down, so that it rereads its settings."""
    module = pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SILENT": "true", "CONSOLE": "off", "ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    yield module
    module.teardown()


def test_wandb_continues_its_run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wandb: Any) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    main([*QUICK, "--model", str(model), *SMALL, *NO_EPISODES, "--wandb", "games", "--output-dir", str(run)])
    time.sleep(1.1)  # its folders are named by time, in seconds
    main(["--resume", str(run), "--steps", "4"])
    wandb.teardown()  # flushes its files
    name = (run / "wandb_id").read_text()
    first, second = (file.read_bytes() for file in sorted(run.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb")))
    assert b"perception_weight" in first, "the config is missing"
    for row in curve(run):
        kept, other = (second, first) if row["step"] == 4 else (first, second)
        assert json.dumps(row["entropy"]).encode() in kept
        assert json.dumps(row["entropy"]).encode() not in other


@pytest.mark.usefixtures("wandb")
def test_wandb_must_accept_the_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = tmp_path / "run"
    code, message = fail(capsys, *QUICK, "--model", str(model), *SMALL, "--wandb", "games", "--output-dir", str(run))
    assert (code, "No API key" in message) == (2, True)
    assert not (run / "before.json").exists()
