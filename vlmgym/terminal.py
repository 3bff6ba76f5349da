"""Rich consoles for terminal output."""

from __future__ import annotations

from rich.console import Console


def make_console(stderr: bool = False) -> Console:
    """Create a console without markup, because paths and messages may look like markup."""
    return Console(stderr=stderr, markup=False, emoji=False)
