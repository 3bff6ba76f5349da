"""The script that checks training on GPUs, on a CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import gpu_smoke
from tests.training import ROOT


def smoke(*options: str, **variables: str) -> tuple[int, list[tuple[str, ...]]]:
    """Run the script; return its exit code, and status, stage and comment of each check."""
    command = ["bash", "training/scripts/gpu_smoke.sh", "--cpu", *options]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    rows = re.findall(r"^(PASS|FAIL|SKIP)  ([A-E])  .{28} +\d+ s +[\d.]+ GiB  (.*)$", done.stdout, re.MULTILINE)
    assert rows, done.stderr
    return done.returncode, rows


@pytest.mark.slow
def test_local_training_passes_on_a_cpu_and_stages_without_their_environment_are_skipped(tmp_path: Path) -> None:
    code, rows = smoke("--stages", "A", "D", "E", EASYR1_PYTHON=str(tmp_path / "python"))
    assert rows[:-2] == [("PASS", "A", "differs from a CPU by 0e+00 in the first step")] * 2
    assert [(status, stage) for status, stage, _ in rows[-2:]] == [("SKIP", "D"), ("SKIP", "E")]
    assert all("setup.sh --easyr1" in comment for *_, comment in rows[-2:])
    assert code == 0


def test_a_check_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = (tmp_path / "result").read_text
    for code, result, expected in (("print(1)", str, "PASS"), ("1 / 0", str, "FAIL"), ("print(1)", missing, "FAIL")):
        check = gpu_smoke.Check("A", "a name", [sys.executable, "-c", code], result)
        assert gpu_smoke.run(check, tmp_path / "log", cpu=True) == (expected == "PASS")
        assert capsys.readouterr().out.startswith(f"{expected}  A  a name ")
