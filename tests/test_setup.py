"""setup.sh in a copy of the project, with the Python, pip and dependencies of this environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTER = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")}
TOOLS = ("bash", "cat", "cksum", "cp", "dirname", "grep", "ln", "mkdir", "mktemp", "mv", "rm", "sed", "tail", "tee")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the project in a folder with a space in its name."""
    clone = tmp_path / "a folder" / "vlmgym"
    for folder in ("vlmgym", "training/requirements"):
        shutil.copytree(ROOT / folder, clone / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.sh", "pyproject.toml", "README.md", "LICENSE", "vlmgym_verifiers.py"):
        shutil.copy(ROOT / name, clone)
    (tmp_path / "bin").mkdir()  # without uv
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return clone


def setup(clone: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("bash") or "bash", str(clone / "setup.sh"), *options]
    environment = {**OUTER, "PATH": str(clone.parents[1] / "bin"), "PYTHON": sys.executable, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def assert_fails(done: subprocess.CompletedProcess[str], words: str, code: int = 1) -> None:
    """Check the exit code, and that standard error is one sentence that contains `words`."""
    assert done.returncode == code, done
    assert done.stderr.startswith("setup.sh: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith((".\n", ").\n"))
    assert words in done.stderr


def test_help_and_invalid_use(clone: Path) -> None:
    done = setup(clone, "--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--dev", "--train", "--easyr1", "--integrations", "PYTHON="))
    assert_fails(setup(clone, "--serve"), "unknown option '--serve'", code=2)
    old = clone.parent / "python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.0\n')
    old.chmod(0o755)
    assert_fails(setup(clone, PYTHON=str(old)), "needs Python 3.10 to 3.13 with its module venv")
    assert not (clone / ".venv").exists()


@pytest.mark.slow
def test_failed_installation_is_reported_in_one_sentence(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / "notes.txt").write_text("precious")
    done = setup(clone, PIP_INDEX_URL="http://127.0.0.1:9", PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull)
    assert_fails(done, "check the network and the package index")
    assert str(clone / "setup.log") in done.stderr
    (kept,) = clone.glob(".venv.old.*/.venv/notes.txt")
    assert kept.read_text() == "precious"


@pytest.mark.slow
def test_installation_into_an_active_environment(clone: Path, tmp_path: Path) -> None:
    """Emulate a conda environment that already has the dependencies, so that hardly anything is downloaded."""
    conda = tmp_path / "conda env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(conda)], check=True, timeout=120)
    (packages,) = conda.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    active = {"CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "vlmgym"}
    done = setup(clone, **active)
    assert done.returncode == 0, (done, (clone / "setup.log").read_text())
    assert (clone / ".venv").readlink() == conda
    script = clone.parent / "beside_the_clone.py"  # the clone's folder could be mistaken for vlmgym
    script.write_text("import vlmgym; print(vlmgym.make_game, vlmgym.__file__)")
    evaluation = clone / "vlmgym" / "test" / "eval_2048.py"
    for folder, words, shown in (
        (tmp_path, [script], f" {clone / 'vlmgym' / '__init__.py'}\n"),
        (clone.parent, [script], f" {clone / 'vlmgym' / '__init__.py'}\n"),
        (clone, [evaluation.relative_to(clone), "--help"], "--episodes"),
        (evaluation.parent, [evaluation.name, "--help"], "--episodes"),
    ):
        command = [str(clone / ".venv" / "bin" / "python"), *map(str, words)]
        done = subprocess.run(command, cwd=folder, env=OUTER, capture_output=True, text=True, check=True)
        assert shown in done.stdout
    assert "up to date" in setup(clone, **active).stdout
