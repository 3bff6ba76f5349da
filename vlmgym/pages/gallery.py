"""`vlmgym gallery`: render every game at every level into one page, with prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from vlmgym import __version__
from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.pages.document import asset, data_url, document
from vlmgym.runs.files import check_own_file, write_file
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.options import GameNames
from vlmgym.sandbox.registry import about, game_class, load_games, make_game, title_of
from vlmgym.terminal import make_console

AnyGame = Game[Any, Any]

CAPTIONS: Mapping[str, Callable[[AnyGame, Any], str]] = {
    "caption": lambda game, state: game.describe(state),
    "geospot": lambda _, state: f"{state.city}, {state.country}",
    "scenes-questions": lambda _, state: state.question,
    "scenes-statements": lambda _, state: state.statement,
}
"""Text below an image, such as the question, by game."""

LONGEST = 60
"""Maximum number of moves that the oracle plays; the state halfway through is shown."""
FOR_THE: dict[Difficulty, str] = {"perception": "harder to see", "reasoning": "harder to solve"}


@dataclass(frozen=True, kw_only=True)
class GalleryConfig:
    """Options of `vlmgym gallery`."""

    game: GameNames = ()
    """Names or ids of games; if empty, all installed games."""
    output: Path = Path("gallery.html")
    """Output page."""
    size: int = 384
    """Image size in pixels."""

    def __post_init__(self) -> None:
        check_int("size", self.size, 64)


def gallery(config: GalleryConfig) -> None:
    """Write the page."""
    check_own_file(config.output)
    shown = items_of(config.game)
    left_out: list[tuple[str, str]] = []
    if not config.game:
        shown, left_out = _drawable(shown, config.size)
        if not shown:
            raise UsageError(f"no game can be drawn: {left_out[0][1]}")
    write_file(config.output, render_page(shown, config.size, left_out).encode())
    make_console().print(f"gallery {config.output}", soft_wrap=True)


# Games and levels -----------------------------------------------------------------------------------------------------


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


# The page -------------------------------------------------------------------------------------------------------------


def _drawable(items: Sequence[GalleryItem], size: int) -> tuple[list[GalleryItem], list[tuple[str, str]]]:
    """Separate items that can be drawn from those whose libraries or data are missing, with the reasons."""
    shown, left_out = [], []
    for item in items:
        try:
            game = item.at(size)
            game.images(Episode(game, shown_seed(game)).state)
        except UsageError as error:
            left_out.append((item.title, str(error)))
        else:
            shown.append(item)
    return shown, left_out


def render_page(items: Sequence[GalleryItem], size: int, left_out: Sequence[tuple[str, str]] = ()) -> str:
    """Build the page; `left_out` has the titles of games that cannot be rendered, with the reasons."""
    parts = {
        "links": "".join(f'<a href="#{escape(item.name)}">{escape(item.title)}</a>' for item in items),
        "left_out": "".join(
            f'<p class="banner">{escape(f"{title} is not shown: {why}")}</p>' for title, why in left_out
        ),
        "items": "".join(_item(item, size) for item in items),
        "version": __version__,
        "size": str(size),
    }
    return document("vlmgym: gallery", "gallery", Template(asset("gallery.html")).substitute(parts))


def _item(item: GalleryItem, size: int) -> str:
    game = item.at(size)
    state = middle_state(game)
    title = item.title
    return f"""
<section id="{escape(item.name)}" class="item">
<h2>{escape(title)}</h2>
<p class="lead">{escape(item.about)}</p>
{"".join(_strip(item, difficulty, size) for difficulty in DIFFICULTIES)}
<article class="panel prompt"><h4>Prompt</h4>
{_images(game.images(state), f"{title} at level 3")}
<pre {_scrolling(f"{title}: prompt")}>{escape(game.instructions(state))}</pre></article>
</section>"""


def _strip(item: GalleryItem, difficulty: Difficulty, size: int) -> str:
    return f"""
<div class="difficulty">
<h3>{difficulty} <span class="faint">{FOR_THE[difficulty]}</span></h3>
<div class="strip" {_scrolling(f"{item.title}: levels of {difficulty}")}>
{"".join(_level(item, level) for level in levels_of(item, difficulty, size))}
</div>
</div>"""


def _level(item: GalleryItem, level: Level) -> str:
    text = CAPTIONS[level.game.name](level.game, level.state) if level.game.name in CAPTIONS else ""
    caption = f'<p class="caption">{escape(text)}</p>' if text else ""
    overrides = level.overrides or ["the default" if level.level == 3 else "as level 3"]
    return f"""
<figure class="level {level.difficulty}-{level.level}">
{_images(level.game.images(level.state), f"{item.title}, {level.difficulty} {level.level}")}
<figcaption><span class="number">{level.level}</span>
<span class="config-fields">{escape(", ".join(overrides))}</span></figcaption>
{caption}</figure>"""


def _images(images: Sequence[ImageArray], alt: str) -> str:
    elements = []
    for number, image in enumerate(images, 1):
        label = escape(alt if len(images) == 1 else f"{alt}, image {number}")
        height, width = image.shape[:2]
        elements.append(f'<img src="{data_url(image)}" alt="{label}" width="{width}" height="{height}">')
    return f'<div class="images of-{len(elements)}">{"".join(elements)}</div>'


def _scrolling(label: str) -> str:
    """Return the attributes that make a scrollable element reachable by keyboard."""
    return f'role="region" aria-label="{escape(label)}" tabindex="0"'
