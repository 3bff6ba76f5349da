"""A poster of all games at all levels: one column per game, one row per level."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from vlmgym.cli.gallery.items import GalleryItem
from vlmgym.sandbox.core.config import LEVELS
from vlmgym.sandbox.rendering.canvas import Canvas, text_width
from vlmgym.sandbox.rendering.palette import THEMES

THEME = THEMES["light"]
MARGIN, GAP, BETWEEN, HEAD = 30, 14, 7, 56
"""Pixels of the margin, between games, between images of a game, and of the title line."""
LABELS = 84
"""Width of the level column in pixels."""
SCALE = 2
"""Supersampling factor."""
RADIUS = 8
"""Corner radius in pixels."""


def draw_poster(items: Sequence[GalleryItem], side: int = 200) -> bytes:
    """Draw the poster as a PNG with 256 colours; images are `side` pixels wide."""
    columns = [_column(item, side) for item in items]
    widths = [column[0].width for column in columns]
    lefts = [MARGIN + LABELS + sum(widths[:i]) + i * GAP for i in range(len(widths))]
    tops = [MARGIN + HEAD + i * (side + GAP) for i in range(len(LEVELS))]
    right = MARGIN + LABELS + sum(widths) + GAP * (len(widths) - 1)
    page = Canvas(right + MARGIN, tops[-1] + side + MARGIN, THEME.page)
    for item, left, width in zip(items, lefts, widths):
        page.text(item.title, left + width / 2, MARGIN + HEAD * 0.4, _fitting(item.title, width), THEME.label)
    for level, top in zip(LEVELS, tops):
        page.text(str(level), MARGIN + LABELS * 0.4, top + side / 2, 34, THEME.label)
        words = {LEVELS[0]: "easy", 3: "default", LEVELS[-1]: "hard"}.get(level)
        if words:
            page.text(words, MARGIN + LABELS * 0.4, top + side / 2 + 36, 10, THEME.label)
    sheet = Image.fromarray(page.pixels())
    for column, left in zip(columns, lefts):
        for image, top in zip(column, tops):
            sheet.paste(image, (left, top))
    file, about = io.BytesIO(), PngInfo()
    about.add_text("Software", "vlmgym")
    sheet.quantize(256, dither=Image.Dither.FLOYDSTEINBERG).save(file, "PNG", optimize=True, pnginfo=about)
    return file.getvalue()


def _column(item: GalleryItem, side: int) -> list[Image.Image]:
    """Draw a game at the five levels of both difficulties."""
    column = []
    for level in LEVELS:
        game = item.at(side * SCALE, level, level)
        images = [Image.fromarray(each) for each in game.images(item.position(game, level - 3))]
        joined = Image.new("RGB", (len(images) * side + (len(images) - 1) * BETWEEN, side), THEME.page)
        for i, image in enumerate(images):
            joined.paste(_framed(image, side), (i * (side + BETWEEN), 0))
        column.append(joined)
    return column


def _framed(image: Image.Image, side: int) -> Image.Image:
    """Scale an image, round its corners and add an edge unless it is a board."""
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
