"""Rich consoles and progress bars for terminal output."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

PROGRESS_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=24),  # fits in 80 columns with the longest counts
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


def make_console(stderr: bool = False) -> Console:
    """Create a console that prints text verbatim, because paths and messages may look like markup."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


class ProgressWithStatus(Progress):
    """A progress bar with a status line below it."""

    facts = ""

    def __init__(self, console: Console) -> None:
        super().__init__(*PROGRESS_COLUMNS, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, then the status line."""
        yield from super().get_renderables()
        if self.facts:
            yield Text(self.facts)
