"""The terminal: text as it is, since paths, names and messages of users may look like markup."""

from __future__ import annotations

from rich.console import Console


def make_console(stderr: bool = False) -> Console:
    """Standard output, or standard error."""
    return Console(stderr=stderr, markup=False, emoji=False)
