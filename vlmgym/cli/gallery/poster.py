"""Posters of several games (a column per game, a row per level), and of one game (a row per difficulty)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from vlmgym.cli.gallery.items import AnyGame, GalleryItem, levels_of, middle_state
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS
from vlmgym.sandbox.drawing.canvas import Canvas, text_width
from vlmgym.sandbox.drawing.palette import THEMES

THEME = THEMES["light"]
MARGIN, GAP, BETWEEN, HEAD = 30, 14, 7, 56
"""Sizes in pixels: margin, gap between games, gap between images of a game, title height."""
SIDE, LEVEL_SIDE = 200, 160
"""Side of an image in pixels: in a poster of several games, and in a poster of one game's levels."""
ACROSS = 8
"""Maximum number of games side by side."""
LABELS = 84
"""Width of the level column in pixels."""
SCALE = 2
"""Supersampling factor."""
RADIUS = 8
"""Corner radius in pixels."""


def draw_poster(items: Sequence[GalleryItem], levels: Sequence[int] = LEVELS) -> bytes:
    """Draw games as a PNG with 256 colours: one row per level, which applies to both difficulties."""
    bands = [
        _joined([_column(item, levels) for item in items[start : start + ACROSS]], items[start:], levels)
        for start in range(0, len(items), ACROSS)
    ]
    sheet = Image.new("RGB", (max(band.width for band in bands), sum(band.height for band in bands)), THEME.page)
    top = 0
    for band in bands:
        sheet.paste(band, (0, top))
        top += band.height
    return _png(sheet)


def draw_levels(item: GalleryItem) -> bytes:
    """Draw a game's five levels of both difficulties as a PNG: one row per difficulty, from easy to hard."""
    side = LEVEL_SIDE
    rows = [[_images(one.game, one.state, side) for one in levels_of(item, d, side * SCALE)] for d in DIFFICULTIES]
    wide = rows[0][0].width + GAP
    page = Canvas(LABELS + wide * len(LEVELS) + GAP, GAP + (side + GAP) * len(rows), THEME.page)
    for i, difficulty in enumerate(DIFFICULTIES):
        page.text(difficulty, LABELS / 2, GAP + side / 2 + i * (side + GAP), 9, THEME.label)
    sheet = Image.fromarray(page.pixels())
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            sheet.paste(image, (LABELS + j * wide, GAP + i * (side + GAP)))
    return _png(sheet)


def _joined(
    columns: Sequence[Sequence[Image.Image]], items: Sequence[GalleryItem], levels: Sequence[int]
) -> Image.Image:
    """Join the columns of games, with their titles above and the levels on the left."""
    widths = [column[0].width for column in columns]
    labels = LABELS if len(levels) > 1 else 0
    lefts = [MARGIN + labels + sum(widths[:i]) + i * GAP for i in range(len(widths))]
    tops = [MARGIN + HEAD + i * (SIDE + GAP) for i in range(len(levels))]
    right = MARGIN + labels + sum(widths) + GAP * (len(widths) - 1)
    page = Canvas(right + MARGIN, tops[-1] + SIDE + MARGIN, THEME.page)
    for item, left, width in zip(items, lefts, widths):
        page.text(item.title, left + width / 2, MARGIN + HEAD * 0.4, _fitting(item.title, width), THEME.label)
    for level, top in zip(levels if labels else (), tops):
        page.text(str(level), MARGIN + LABELS * 0.4, top + SIDE / 2, 34, THEME.label)
        words = {LEVELS[0]: "easy", 3: "default", LEVELS[-1]: "hard"}.get(level)
        if words:
            page.text(words, MARGIN + LABELS * 0.4, top + SIDE / 2 + 36, 10, THEME.label)
    sheet = Image.fromarray(page.pixels())
    for column, left in zip(columns, lefts):
        for image, top in zip(column, tops):
            sheet.paste(image, (left, top))
    return sheet


def _png(sheet: Image.Image) -> bytes:
    file, about = io.BytesIO(), PngInfo()
    about.add_text("Software", "vlmgym")
    sheet.quantize(256, dither=Image.Dither.FLOYDSTEINBERG).save(file, "PNG", optimize=True, pnginfo=about)
    return file.getvalue()


def _column(item: GalleryItem, levels: Sequence[int]) -> list[Image.Image]:
    """Draw a game at each level; the level applies to both difficulties."""
    games = ((level, item.at(SIDE * SCALE, level, level)) for level in levels)
    return [_images(game, middle_state(game, level - 3), SIDE) for level, game in games]


def _images(game: AnyGame, state: Any, side: int) -> Image.Image:
    """Draw the images of a state side by side."""
    images = [Image.fromarray(each) for each in game.images(state)]
    joined = Image.new("RGB", (len(images) * side + (len(images) - 1) * BETWEEN, side), THEME.page)
    for i, image in enumerate(images):
        joined.paste(_framed(image, side), (i * (side + BETWEEN), 0))
    return joined


def _framed(image: Image.Image, side: int) -> Image.Image:
    """Scale an image, round its corners, and outline it unless its top-left pixel has the page colour."""
    large = Image.new("RGB", image.size, THEME.page)
    mask, box = Image.new("L", image.size), (0, 0, image.width - 1, image.height - 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, SCALE * RADIUS, 255)
    large.paste(image, mask=mask)
    if image.getpixel((0, 0)) != THEME.page:
        ImageDraw.Draw(large).rounded_rectangle(box, SCALE * RADIUS, outline=THEME.empty, width=SCALE)
    return large.resize((side, side), Image.Resampling.LANCZOS)


def _fitting(title: str, width: int) -> float:
    """Return the font height at which a title fits its column."""
    return min(15.0, 15.0 * width / text_width(title, 15.0))
