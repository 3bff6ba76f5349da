"""Errors that training scripts report without the training environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import no_process_left
from tests.training import ROOT, training_python
from vlmgym.cli.main import main
from vlmgym.evaluation import RunFolder, read_run

SCRIPTS = ROOT / "training" / "scripts"


def run(script: str, *args: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPTS / script), *map(str, args)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sft") / "oracle 2048"
    play = ["eval", "2048", "--policy", "oracle", "--episodes", "1", "--max-turns", "1", "--config", "size=64"]
    main([*play, "--videos", "0", "--no-report", "--workers", "0", "--output-dir", str(folder.parent / "run")])
    main(["export", str(folder.parent / "run"), "--format", "sharegpt", "--workers", "0", "--output-dir", str(folder)])
    return folder


@pytest.mark.parametrize(
    ("model", "template"),
    [("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2_vl"), ("Qwen/Qwen3-VL-4B-Instruct", "qwen3_vl_nothink")],
)
def test_sft_passes_data_and_template(exported: Path, tmp_path: Path, model: str, template: str) -> None:
    done = run("sft.sh", exported, tmp_path / "out", "num_train_epochs=3", LLAMAFACTORY="echo", MODEL=model)
    assert done.returncode == 0, done.stderr
    for setting in (
        f"train {ROOT}/training/sft/sft.yaml",
        f"model_name_or_path={model} template={template} ",
        f"dataset_dir={exported} media_dir={exported} dataset=oracle_2048 ",
        " num_train_epochs=3\n",
    ):
        assert setting in done.stdout


def test_fine_tuned_checkpoints_are_evaluated_as_trained(exported: Path, tmp_path: Path) -> None:
    """The command that stands in for LLaMA-Factory only creates the checkpoint folder."""
    command, out, run_folder = tmp_path / "train", tmp_path / "out", tmp_path / "run"
    command.write_text('#!/bin/sh\nfor word; do case $word in output_dir=*) mkdir "${word#*=}" ;; esac; done\n')
    command.chmod(0o755)
    done = run("sft.sh", exported, out, LLAMAFACTORY=str(command))
    assert done.returncode == 0, done.stderr
    play = ["eval", "--as-trained", str(out), "--policy", "oracle", "--episodes", "1", "--videos", "0", "--no-report"]
    main([*play, "--workers", "0", "--output-dir", str(run_folder)])
    played = read_run(RunFolder(run_folder))
    assert played.config.games == read_run(RunFolder(exported.parent / "run")).config.games
    assert (played.config.max_turns, [episode.seed for episode in played.episodes]) == (1, [1_000_000])


def test_sft_reports_missing_arguments(exported: Path, tmp_path: Path) -> None:
    for args, words in (
        ((), "usage: sft.sh"),
        ((tmp_path, tmp_path / "out"), "has no dataset_info.json"),
        ((exported, tmp_path), "already exists: choose a new folder"),
        ((exported, tmp_path / "out"), "nowhere not found: pip install llamafactory"),
    ):
        assert_rejected(run("sft.sh", *args, LLAMAFACTORY="nowhere"), words)


@pytest.mark.parametrize(
    ("name", "variables", "words"),
    [
        ("2048", {"GPUS": "x"}, "got x"),
        ("2048", {"LORA": "yes"}, "LORA must be 0 or 1"),
        ("chess", {}, "training/configs/chess.yaml"),
    ],
)
def test_easyr1_variables_are_checked(name: str, variables: dict[str, str], words: str) -> None:
    assert_rejected(run("easyr1.sh", name, "--check", **variables), words)


@pytest.mark.parametrize(
    "script", sorted(path.name for path in SCRIPTS.glob("*.sh") if "easyr1.sh" in path.read_text())
)
def test_easyr1_scripts_have_help(script: str) -> None:
    done = run(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("MODEL ", "DATA ", "GPUS, NODES ", "LORA=1 ", "LOW_MEMORY=1 ", "OUT ", "--check", "SETTING=VALUE"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("script", "word"),
    [("sft.sh", "LLAMAFACTORY "), ("serve_vllm.sh", "PORT"), ("evaluate.sh", "OUT "), ("gpu_smoke.sh", "--stages ")],
)
def test_other_scripts_have_help(script: str, word: str) -> None:
    done = run(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert word in done.stdout


@pytest.mark.slow
def test_local_training_shows_the_demo_unless_another_preset_or_model_is_given() -> None:
    training_python()  # skips the test without it

    def help_of(*args: str) -> str:
        command = ["bash", "training/scripts/local_2048.sh", *args, "--help"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "Steps of reinforcement learning. (default: 60)" in help_of()
    assert "Steps of reinforcement learning. (default: 100)" in help_of("--preset", "tiny")


def test_serving_checks_model_and_port(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert_rejected(run("serve_vllm.sh", tmp_path / "none", PORT="8000"), "config.json")
    assert_rejected(run("serve_vllm.sh", tmp_path, PORT="x"), "PORT")


def test_evaluation_checks_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "sharded" / "actor").mkdir(parents=True)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    hub, model, out = "Qwen/Qwen2.5-VL-7B-Instruct", tmp_path / "model", tmp_path / "out"
    for args, variables, words in (
        ((), {}, "usage: evaluate.sh"),
        ((tmp_path / "sharded", hub), {}, "convert it with export.sh"),
        (
            (tmp_path / "sharded" / "actor", hub, "2048"),
            {},
            "sharded/actor is neither a model folder with config.json nor a Hub name",
        ),
        ((model, hub, "0", "2048"), {}, "EPISODES must be a number of at least 1, got 0"),
        ((model, hub, "10"), {}, "has no vlmgym.json: name a game"),
        ((model, hub, "10", "2048"), {"PORT": "x"}, "PORT must be a number of at least 1, got x"),
        ((model, hub, "10", "2048"), {"OUT": str(tmp_path)}, "already exists: set OUT"),
    ):
        assert_rejected(run("evaluate.sh", *args, **{"OUT": str(out), **variables}), words)
        assert not out.exists()


def test_evaluation_gives_up_on_a_server_that_never_responds(tmp_path: Path) -> None:
    """A program that never responds stands in for vLLM."""
    scripts, model = tmp_path / "training" / "scripts", tmp_path / "a" / "model"
    scripts.mkdir(parents=True)
    for name in ("evaluate.sh", "serve_vllm.sh"):
        shutil.copy(SCRIPTS / name, scripts)
    programs = {".venv": f'exec {sys.executable} "$@"', ".venv-train": 'echo "$@" && exec sleep 60'}
    for folder, program in programs.items():
        python = tmp_path / folder / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
        (tmp_path / folder / ".vlmgym-setup").write_text("1 2 here cpu")
    model.mkdir(parents=True)
    (model / "config.json").touch()
    with no_process_left() as mark:
        command = [*mark, "bash", str(scripts / "evaluate.sh"), str(model), str(model), "1", "2048"]
        environment = {**os.environ, "OUT": str(tmp_path / "out"), "WAIT": "1", "HOST": "0.0.0.0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "vLLM did not start" in done.stderr
    assert "--host 127.0.0.1" in (tmp_path / "out" / "trained.log").read_text()


def assert_rejected(done: subprocess.CompletedProcess[str], words: str) -> None:
    """Check for exit code 2 and a single line on standard error that contains `words`."""
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
