"""The command `vlmgym view`: a local web app over all runs in a folder."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.errors import UsageError
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """Options of `vlmgym view`."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")] = Path()
    """Folder that is searched for runs and trainings, at any depth."""
    port: int = 0
    """Port on this machine; 0 means any free one."""
    browser: bool = True
    """Open the page in a browser."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port must be between 0 and 65535, got {self.port}")


def view(config: ViewConfig) -> None:
    """Serve the pages until Ctrl-C; raise `UsageError` if the folder does not exist."""
    if not config.folder.is_dir():
        raise UsageError(f"{config.folder} is not a folder")
    from vlmgym.pages.library import Library
    from vlmgym.pages.server import serve  # imports the web server

    def announce(url: str) -> None:
        about = f"Shows the runs in {config.folder.absolute()}; Ctrl-C ends it."
        make_console().print(f"view    {url}\n{about}", soft_wrap=True)
        sys.stdout.flush()
        has_display = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & {*os.environ}
        if config.browser and has_display:  # otherwise, a browser in the terminal would open
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve(Library(config.folder), config.port, announce)
