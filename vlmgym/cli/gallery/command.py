"""`vlmgym gallery`: every game at every level on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.checks import check_int
from vlmgym.cli.gallery.exhibits import Exhibit, exhibits_of
from vlmgym.cli.gallery.page import LeftOut, write_page
from vlmgym.cli.gallery.poster import draw_poster
from vlmgym.errors import UsageError
from vlmgym.records.files import check_own_file, write_own_file
from vlmgym.sandbox.core.episode import Episode
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class GalleryConfig:
    """Draw games at every level into one page that opens from disk, with prompts and scored responses."""

    game: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...")] = ()
    """Names or ids of games, or shisensho_pictures. Default: all that are installed."""
    output: Path = Path("gallery.html")
    """The page."""
    poster: Path | None = None
    """Write one image of all levels, too: a PNG file."""
    size: int = 384
    """Side of the page's images in pixels."""

    def __post_init__(self) -> None:
        check_int("size", self.size, 64)


def gallery(config: GalleryConfig) -> None:
    """Write the page, and the poster if it is asked for, and print where they are.

    Raises:
        UsageError: There is no such game, one that was named cannot be drawn here, or a file is there that vlmgym did
            not write.
        OutputError: A file cannot be written.
    """
    for path in (config.output, config.poster):
        if path is not None:
            check_own_file(path)
    console = make_console()
    shown = exhibits_of(config.game)
    left_out: list[LeftOut] = []
    if not config.game:
        shown, left_out = _drawable(shown, config.size)
        if not shown:
            raise UsageError(f"no game can be drawn: {left_out[0].why}")
    write_own_file(config.output, write_page(shown, config.size, left_out).encode())
    console.print(f"page    {config.output}", soft_wrap=True)
    if config.poster is not None:
        write_own_file(config.poster, draw_poster(shown))
        console.print(f"poster  {config.poster}", soft_wrap=True)


def _drawable(exhibits: Sequence[Exhibit], size: int) -> tuple[list[Exhibit], list[LeftOut]]:
    """What can be drawn here, and what cannot: the images of some need libraries that may not be installed."""
    shown, left_out = [], []
    for exhibit in exhibits:
        try:
            game = exhibit.at(size)
            game.images(Episode(game, exhibit.seed).state)
        except UsageError as error:
            left_out.append(LeftOut(exhibit.title, str(error)))
        else:
            shown.append(exhibit)
    return shown, left_out
