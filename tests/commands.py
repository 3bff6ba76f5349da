"""Commands, run in the test's process (see the fixture `run`) or in a new one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SMALL = ["--size", "96", "--episodes", "2", "--max-turns", "4", "--workers", "0"]
BARE = [*SMALL, "--videos", "0", "--no-report"]


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command; `err` without line breaks."""

    code: int
    out: str
    err: str
    err_lines: int


def in_process(command: Callable[[], object], capture: pytest.CaptureFixture[str]) -> Done:
    code = 0
    capture.readouterr()  # output of earlier commands
    try:
        command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
    out, err = capture.readouterr()
    return Done(code, out, " ".join(err.split()), err.count("\n"))


def policy_file(folder: Path, body: str) -> str:
    """Write a policy whose function has this body; return its name on the command line."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "mine.py").write_text(f"import os, sys, time\ncalls = []\ndef policy(images, prompts):\n{lines}")
    return "mine.py:policy"


def process(*args: object, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start `python -m vlmgym` in its own process group."""
    command = [sys.executable, "-m", "vlmgym", *map(str, args)]
    return subprocess.Popen(command, cwd=cwd, start_new_session=True, text=True, **options)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and not condition():
        time.sleep(0.02)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
