"""`vlmgym gallery`: render every game at every level into one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.checks import check_int
from vlmgym.cli.gallery.items import GalleryItem, items_of
from vlmgym.cli.gallery.page import render_page
from vlmgym.cli.gallery.poster import draw_poster
from vlmgym.errors import UsageError
from vlmgym.records.files import check_own_file, write_own_file
from vlmgym.sandbox.core.episode import Episode
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class GalleryConfig:
    """Options of `vlmgym gallery`."""

    game: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...", help_behavior_hint="")
    ] = ()
    """Names or ids of games; if empty, all installed games."""
    output: Path = Path("gallery.html")
    """Output page."""
    poster: Path | None = None
    """Also write a poster of all levels to this PNG file."""
    size: int = 384
    """Image size in pixels."""

    def __post_init__(self) -> None:
        check_int("size", self.size, 64)


def gallery(config: GalleryConfig) -> None:
    """Write the page and, if requested, the poster."""
    for path in (config.output, config.poster):
        if path is not None:
            check_own_file(path)
    console = make_console()
    shown = items_of(config.game)
    left_out: list[tuple[str, str]] = []
    if not config.game:
        shown, left_out = _drawable(shown, config.size)
        if not shown:
            raise UsageError(f"no game can be drawn: {left_out[0][1]}")
    write_own_file(config.output, render_page(shown, config.size, left_out).encode())
    console.print(f"gallery {config.output}", soft_wrap=True)
    if config.poster is not None:
        write_own_file(config.poster, draw_poster(shown))
        console.print(f"poster  {config.poster}", soft_wrap=True)


def _drawable(items: Sequence[GalleryItem], size: int) -> tuple[list[GalleryItem], list[tuple[str, str]]]:
    """Separate items that can be drawn from those whose libraries or data are missing, with the reasons."""
    shown, left_out = [], []
    for item in items:
        try:
            game = item.at(size)
            game.images(Episode(game, game.shown_seed).state)
        except UsageError as error:
            left_out.append((item.title, str(error)))
        else:
            shown.append(item)
    return shown, left_out
