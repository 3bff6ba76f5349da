"""Games in representative states at every level, and posters of them.

A poster of several games has a column per game and a row per level; a poster of one game has a row per difficulty.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.drawing.canvas import Canvas, text_width
from vlmgym.sandbox.drawing.palette import THEMES
from vlmgym.sandbox.registry import about, game_class, load_games, make_game, title_of

AnyGame = Game[Any, Any]

LONGEST = 60
"""Maximum number of moves that the oracle plays; the state halfway through is shown."""
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

    def at(self, size: int, perception: int = 3, reasoning: int = 3) -> AnyGame:
        """Make the game at the given levels, with images of `size` pixels."""
        return make_game(self.game, perception, reasoning, size=size, **self.overrides)


def middle_state(game: AnyGame, later: int = 0) -> Any:
    """Return the state halfway through an oracle episode; `later` is added to the seed."""
    episode = Episode(game, game.shown_seed + later)
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
    found = game_class(game)
    name, title, text = found.name, title_of(found), about(found)
    variants = (
        GalleryItem(f"{name}_{variant}", f"{title} with {variant}", game, text, overrides)
        for variant, overrides in found.variants.items()
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
    found = []
    for level in LEVELS:
        perception, reasoning = (level, 3) if difficulty == "perception" else (3, level)
        game = item.at(size, perception, reasoning)
        found.append(Level(item, difficulty, level, game, middle_state(game, reasoning - 3)))
    return found


def _config_field(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


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
