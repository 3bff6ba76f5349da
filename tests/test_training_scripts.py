"""The scripts of training that need no training environment to say what is wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.training import ROOT
from vlmgym.cli.main import main

SCRIPTS = ROOT / "training" / "scripts"


def cold_start(*args: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    command = ["bash", str(SCRIPTS / "cold_start.sh"), *map(str, args)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cold") / "oracle 2048"
    play = ["eval", "2048", "--policy", "oracle", "--episodes", "1", "--max-turns", "1", "--config", "size=64"]
    main([*play, "--videos", "0", "--no-report", "--workers", "0", "--output-dir", str(folder.parent / "run")])
    main(["export", str(folder.parent / "run"), "--format", "sharegpt", "--workers", "0", "--output-dir", str(folder)])
    return folder


@pytest.mark.parametrize(
    ("model", "template"),
    [("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2_vl"), ("Qwen/Qwen3-VL-4B-Instruct", "qwen3_vl_nothink")],
)
def test_cold_start_names_data_and_template(exported: Path, tmp_path: Path, model: str, template: str) -> None:
    done = cold_start(exported, tmp_path / "out", "num_train_epochs=3", LLAMAFACTORY="echo", MODEL=model)
    assert done.returncode == 0, done.stderr
    for setting in (
        f"train {ROOT}/training/cold_start/sft.yaml",
        f"model_name_or_path={model} template={template} ",
        f"dataset_dir={exported} media_dir={exported} dataset=oracle_2048 ",
        " num_train_epochs=3\n",
    ):
        assert setting in done.stdout


def test_cold_start_says_what_is_missing(exported: Path, tmp_path: Path) -> None:
    for args, words in (
        ((), "name the folder of vlmgym export"),
        ((tmp_path, tmp_path / "out"), "has no dataset_info.json"),
        ((exported, tmp_path), "is there already: name a new folder"),
        ((exported, tmp_path / "out"), "there is no nowhere: pip install llamafactory"),
    ):
        done = cold_start(*args, LLAMAFACTORY="nowhere")
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "variables", "words"),
    [
        (("2048",), {"GPUS": "x"}, "GPUS is a number of at least 1, not x"),
        (("2048",), {"NODES": "0"}, "NODES is a number of at least 1, not 0"),
        (("2048",), {"LORA": "yes"}, "LORA is 1 or 0, not yes"),
        (("chess",), {}, "there is no training/configs/chess.yaml"),
    ],
)
def test_variables_of_easyr1_are_checked(names: tuple[str, ...], variables: dict[str, str], words: str) -> None:
    command = ["bash", str(SCRIPTS / "easyr1.sh"), *names, "--check"]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"easyr1.sh: {words}\n")


@pytest.mark.parametrize(
    "script", sorted(path.name for path in SCRIPTS.glob("*.sh") if "easyr1.sh" in path.read_text())
)
def test_scripts_of_easyr1_say_what_they_take(script: str) -> None:
    done = subprocess.run(["bash", SCRIPTS / script, "--help"], capture_output=True, text=True, check=True, timeout=60)
    for word in ("MODEL ", "GPUS, NODES ", "LORA=1 ", "LOW_MEMORY=1 ", "OUT ", "--check", "SETTING=VALUE"):
        assert word in done.stdout
    assert not done.stderr


def test_serving_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for folder, port, words in ((tmp_path / "none", "8000", "name the folder of a model"), (tmp_path, "x", "PORT is")):
        command = ["bash", str(SCRIPTS / "serve_vllm.sh"), str(folder)]
        environment = {**os.environ, "PORT": port}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
