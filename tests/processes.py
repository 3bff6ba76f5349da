"""Whether processes are gone."""

from __future__ import annotations

import time
from collections.abc import Iterable


def gone(pids: Iterable[int], within: float = 20.0) -> bool:
    """Whether none of these processes runs any more after so many seconds at most; zombies do not run."""
    until = time.monotonic() + within
    left = list(pids)
    while (left := [pid for pid in left if _runs(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return not left


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
