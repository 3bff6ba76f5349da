"""Processes in tests."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any


def gone(pids: Iterable[int], within: float = 20.0) -> bool:
    """Return True once none of these processes runs (zombies do not), or False after `within` seconds."""
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
    """Return the process of a worker of a vector environment."""
    return envs._group.workers[number]._worker.process
