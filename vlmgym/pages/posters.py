"""Games in representative states at every level, and posters of them.

A poster of several games has a column per game and a row per level; a poster of one game has a row per difficulty.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.drawing.canvas import Canvas, text_width
from vlmgym.sandbox.drawing.palette import THEMES, Theme, ThemeName
from vlmgym.sandbox.registry import about, game_class, load_games, make_game, title_of

AnyGame = Game[Any, Any]

LONGEST = 60
"""Maximum number of moves that the oracle plays; the state halfway through is shown."""
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


VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"shisensho": {"images": {"tiles": "digits"}}}
"""Config fields that select other kinds of images, by game and by a word; each is an item `TITLE with WORD`."""


@dataclass(frozen=True)
class GalleryItem:
    """A game in the gallery.

    Attributes:
        name: Anchor in the page.
        title: Heading.
        game: Name or id of the game.
        about: One-sentence description of a turn.
        overrides: Config fields that are the same at every level.
    """

    name: str
    title: str
    game: str
    about: str
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def at(self, size: int, perception: int = 3, reasoning: int = 3, **overrides: Any) -> AnyGame:
        """Make the game at the given levels, with images of `size` pixels and further config fields."""
        return make_game(self.game, perception, reasoning, size=size, **self.overrides, **overrides)


def shown_seed(game: AnyGame) -> int:
    """Return the seed of the state that the gallery and the documentation show at level 3."""
    return {"caption": 14}.get(game.name, 7)


def middle_state(game: AnyGame, later: int = 0) -> Any:
    """Return the state halfway through an oracle episode; `later` is added to the seed."""
    episode = Episode(game, shown_seed(game) + later)
    states = [episode.state]
    while len(states) <= LONGEST:
        action = game.best_action(states[-1])
        if action is None or episode.act(action).terminated:
            break
        states.append(episode.state)
    return states[len(states) // 2]


def items_of(names: Sequence[str] = ()) -> list[GalleryItem]:
    """Return the items of the named games, by default of all installed games."""
    if names:
        return [item for name in names for item in _items(name)]
    loaded, failed = load_games()
    items = [item for game_id in loaded for item in _items(game_id)]
    return [*items, *(GalleryItem(game_id, game_id, game_id, "") for game_id in failed)]


def _items(game: str) -> list[GalleryItem]:
    """Make the items of a game from its class: one with its defaults, and one per variant."""
    cls = game_class(game)
    name, title, text = cls.name, title_of(cls), about(cls)
    variants = (
        GalleryItem(f"{name}_{variant}", f"{title} with {variant}", game, text, overrides)
        for variant, overrides in VARIANTS.get(name, {}).items()
    )
    return [GalleryItem(name, title, game, text), *variants]


@dataclass(frozen=True)
class Level:
    """A state of an item at one level of one difficulty, with the other difficulty at level 3."""

    item: GalleryItem
    difficulty: Difficulty
    level: int
    game: AnyGame
    state: Any

    @property
    def overrides(self) -> list[str]:
        """Descriptions of the config fields that differ from level 3."""
        config = type(self.game).Config
        published: Any = config.at(**self.item.overrides)
        names = set(config.level_values(self.difficulty)) - set(published.unused_fields)
        values = {name: getattr(self.game.config, name) for name in config.model_fields if name in names}
        return [_config_field(name, value) for name, value in values.items() if value != getattr(published, name)]


def levels_of(item: GalleryItem, difficulty: Difficulty, size: int) -> list[Level]:
    """Return an item at the five levels of one difficulty."""
    levels = []
    for level in LEVELS:
        perception, reasoning = (level, 3) if difficulty == "perception" else (3, level)
        game = item.at(size, perception, reasoning)
        levels.append(Level(item, difficulty, level, game, middle_state(game, reasoning - 3)))
    return levels


def _config_field(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


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
