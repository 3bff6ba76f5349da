"""Find and check processes in tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def gone(pids: Iterable[int], within: float = 20.0) -> bool:
    """Wait until none of these processes is running, not counting zombies; return False after `within` seconds."""
    deadline = time.monotonic() + within
    left = list(pids)
    while (left := [pid for pid in left if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def worker_process(envs: Any, number: int) -> Any:
    """Return the process of a vector environment's worker."""
    return envs._group.workers[number].process.process


@contextmanager
def no_process_left() -> Iterator[list[str]]:
    """Yield a command prefix that marks the processes it starts; at the end, check that none of them is left."""
    mark = f"VLMGYM_TEST={time.monotonic_ns()}"
    yield ["env", mark]
    until = time.monotonic() + 10
    while left := [pid for pid in processes() if mark in read_proc(pid, "environ")]:
        if time.monotonic() > until:
            names = [read_proc(pid, "cmdline") for pid in left]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"left over: {names}")
        time.sleep(0.2)


def processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def read_proc(pid: int, what: str) -> str:
    """Read one of a process's files in /proc; empty if the process has ended or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
