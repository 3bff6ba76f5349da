"""Posters of games: all games at some levels for the README, and the levels of one game for its page."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from vlmgym.pages.gallery import AnyGame, GalleryItem, levels_of, middle_state
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS
from vlmgym.sandbox.drawing.canvas import THEMES, Canvas, Theme, ThemeName, text_width
from vlmgym.sandbox.registry import game_class

MARGIN, GAP, BETWEEN, HEAD = 30, 14, 7, 56
"""Sizes in pixels: margin, gap between games, gap between images of a game, height of titles."""
SIDE, LEVEL_SIDE, THUMBNAIL = 200, 160, 96
"""Side of a game in pixels: in a poster of several games, in a poster of one game's levels, and in a thumbnail."""
ACROSS = 8
"""Maximum number of games side by side."""
LABELS = 84
"""Width of the level column in pixels."""
SCALE = 2
"""Supersampling factor."""
RADIUS = 8
"""Corner radius in pixels."""


def draw_poster(items: Sequence[GalleryItem], levels: Sequence[int] = LEVELS, theme: ThemeName = "light") -> bytes:
    """Draw games as a PNG with 256 colours.

    Games are in rows of at most `ACROSS` columns, all of the same width. If there are several levels, each row of games
    has a row per level, which applies to both difficulties.
    """
    bands = [items[start:end] for start, end in pairwise(_splits(len(items)))]
    labels = LABELS if len(levels) > 1 else 0
    inside = max(map(len, bands)) * (SIDE + GAP) - GAP
    rows = [_band(band, levels, inside, labels, theme) for band in bands]
    sheet = Image.new("RGB", (rows[0].width, sum(row.height for row in rows)), THEMES[theme].page)
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return _png(sheet)


def draw_levels(item: GalleryItem) -> bytes:
    """Draw a game's five levels of both difficulties as a PNG: one row per difficulty, from easy to hard."""
    levels = [levels_of(item, difficulty, LEVEL_SIDE * SCALE) for difficulty in DIFFICULTIES]
    most = max(len(level.game.image_shapes) for row in levels for level in row)
    side = LEVEL_SIDE if most == 1 else 2 * LEVEL_SIDE + BETWEEN
    rows = [[_cell(level.game, level.state, side, "light") for level in row] for row in levels]
    heights = [max(cell.height for cell in row) for row in rows]
    tops = [GAP + sum(heights[:i]) + i * GAP for i in range(len(rows))]
    page = Canvas(LABELS + (side + GAP) * len(LEVELS), tops[-1] + heights[-1] + GAP, THEMES["light"].page)
    for difficulty, top, height in zip(DIFFICULTIES, tops, heights):
        page.text(difficulty, LABELS / 2, top + height / 2, 9, THEMES["light"].label)
    sheet = Image.fromarray(page.pixels())
    for row, top in zip(rows, tops):
        for j, cell in enumerate(row):
            sheet.paste(cell, (LABELS + j * (side + GAP), top))
    return _png(sheet)


def draw_thumbnail(item: GalleryItem) -> bytes:
    """Draw a game at its default levels as a PNG of `THUMBNAIL` pixels."""
    game = item.at(THUMBNAIL * SCALE)
    return _png(_centred(_cell(game, middle_state(game), THUMBNAIL, "light"), THUMBNAIL, "light"))


def _splits(count: int) -> list[int]:
    """Return where rows of games start, and the end of the last row; lengths of rows differ by at most one."""
    rows = math.ceil(count / ACROSS)
    return [round(i * count / rows) for i in range(rows + 1)]


def _band(
    items: Sequence[GalleryItem], levels: Sequence[int], inside: int, labels: int, theme: ThemeName
) -> Image.Image:
    """Draw a row of games of `inside` pixels, with their titles above, and the levels on the left."""
    colours = THEMES[theme]
    side = (inside - GAP * (len(items) - 1)) // len(items)
    lefts = [MARGIN + labels + round(i * (inside + GAP) / len(items)) for i in range(len(items))]
    tops = [HEAD + i * (side + GAP) for i in range(len(levels))]
    page = Canvas(2 * MARGIN + labels + inside, tops[-1] + side + MARGIN, colours.page)
    for item, left in zip(items, lefts):
        height = min(15.0, 15.0 * side / text_width(item.title, 15.0))
        page.text(item.title, left + side / 2, HEAD * 0.6, height, colours.label)
    for level, top in zip(levels if labels else (), tops):
        page.text(str(level), MARGIN + LABELS * 0.4, top + side / 2, 34, colours.label)
        words = {LEVELS[0]: "easy", 3: "default", LEVELS[-1]: "hard"}.get(level)
        if words:
            page.text(words, MARGIN + LABELS * 0.4, top + side / 2 + 36, 10, colours.label)
    sheet = Image.fromarray(page.pixels())
    for item, left in zip(items, lefts):
        themed = {"theme": theme} if "theme" in game_class(item.game).Config.model_fields else {}
        for level, top in zip(levels, tops):
            game = item.at(side * SCALE, level, level, **themed)
            cell = _cell(game, middle_state(game, level - 3), side, theme)
            sheet.paste(_centred(cell, side, theme), (left, top))
    return sheet


def _png(sheet: Image.Image) -> bytes:
    file, about = io.BytesIO(), PngInfo()
    about.add_text("Software", "vlmgym")
    sheet.quantize(256, kmeans=3, dither=Image.Dither.FLOYDSTEINBERG).save(file, "PNG", optimize=True, pnginfo=about)
    return file.getvalue()


def _cell(game: AnyGame, state: Any, side: int, theme: ThemeName) -> Image.Image:
    """Draw the images of a state in a grid that is `side` pixels wide."""
    images = [Image.fromarray(pixels) for pixels in game.images(state)]
    columns = math.ceil(math.sqrt(len(images)))
    rows, width = math.ceil(len(images) / columns), (side + BETWEEN) // columns - BETWEEN
    cell = Image.new("RGB", (side, rows * (width + BETWEEN) - BETWEEN), THEMES[theme].page)
    for i, image in enumerate(images):
        row, column = divmod(i, columns)
        cell.paste(_framed(image, width, THEMES[theme]), (column * (width + BETWEEN), row * (width + BETWEEN)))
    return cell


def _centred(cell: Image.Image, side: int, theme: ThemeName) -> Image.Image:
    """Return a cell in the middle of a square."""
    square = Image.new("RGB", (side, side), THEMES[theme].page)
    square.paste(cell, (0, (side - cell.height) // 2))
    return square


def _framed(image: Image.Image, side: int, colours: Theme) -> Image.Image:
    """Scale an image, round its corners, and outline it unless its top-left pixel has the page colour."""
    large = Image.new("RGB", image.size, colours.page)
    mask, box = Image.new("L", image.size), (0, 0, image.width - 1, image.height - 1)
    radius = RADIUS * image.width // side
    ImageDraw.Draw(mask).rounded_rectangle(box, radius, 255)
    large.paste(image, mask=mask)
    if image.getpixel((0, 0)) != colours.page:
        ImageDraw.Draw(large).rounded_rectangle(box, radius, outline=colours.empty, width=image.width // side)
    return large.resize((side, side), Image.Resampling.LANCZOS)
