"""Check available memory before allocating."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.game import Game

EPISODE_BYTES = 8_000
"""Memory of a running episode and its snapshot, without images. The built-in games need 2 to 8 kB."""


def frame_bytes(game: Game[Any, Any]) -> int:
    """Bytes of one observation."""
    return sum(math.prod(shape) for shape in game.image_shapes)


def check_memory(needed: int, what: str, advice: str) -> None:
    """Raise `UsageError` if `needed` bytes are not available; `what` is a plural noun phrase for the message."""
    free = available_memory()
    if free is not None and needed > free:
        raise UsageError(f"{what} need {_gigabytes(needed)} of memory and {_gigabytes(free)} is available: {advice}")


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes available on the machine or in the process's cgroups, whichever is less; None if neither is known."""
    limits = [*_of_machine(root / "proc/meminfo"), *_of_groups(root / "proc/self/cgroup", root / "sys/fs/cgroup")]
    return min(limits, default=None)


def _of_machine(meminfo: Path) -> Iterator[int]:
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        yield int(lines["MemAvailable"].split()[0]) * 1024


def _of_groups(membership: Path, groups: Path) -> Iterator[int]:
    """Remaining memory of each control group (v2) that has a limit, from the process's own group upwards."""
    for line in membership.read_text().splitlines() if membership.exists() else ():
        controllers, path = line.split(":", 2)[1:]
        folder = groups / path.lstrip("/")
        for group in (folder, *folder.parents) if controllers == "" else ():
            if (group / "memory.max").is_file() and (most := (group / "memory.max").read_text().strip()) != "max":
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                used = int((group / "memory.current").read_text()) - int(stat["inactive_file"])
                yield max(0, int(most) - used)
            if group == groups:
                break


def _gigabytes(count: int) -> str:
    return f"{count // 10**9:,}.{count // 10**8 % 10} GB"
