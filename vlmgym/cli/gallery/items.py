"""Gallery items: games in representative states, with captions and example responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vlmgym.sandbox.core.config import LEVELS, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome, Scored, score_response
from vlmgym.sandbox.registry import game_class, load_games, make_game

AnyGame = Game[Any, Any]

OTHER_STATES = 4
"""Number of other states to take a wrong response from."""
LONGEST = 60
"""Maximum length of an oracle's game; the state halfway through is shown."""


@dataclass(frozen=True)
class GalleryItem:
    """A game in the gallery.

    Attributes:
        name: Name on the command line.
        title: Heading.
        game: Name or id of the game.
        about: One-sentence description of a turn.
        overrides: Config fields that are the same at every level.
        unused: Config fields without effect here.
        seed: Seed of the state at level 3; reasoning levels use neighbouring seeds.
        moves: Oracle moves before the shown state, fewer if the game would end; None: half of an oracle's game.
        caption: Makes the caption of a state.
    """

    name: str
    title: str
    game: str
    about: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    seed: int = 7
    moves: int | None = None
    caption: Callable[[AnyGame, Any], str] | None = None

    def at(self, size: int, perception: int = 3, reasoning: int = 3) -> AnyGame:
        """Make the game at given levels with images of `size` pixels."""
        return make_game(self.game, perception, reasoning, size=size, **self.overrides)

    def position(self, game: AnyGame, later: int = 0) -> Any:
        """Return a state that has not ended; `later` is added to the seed."""
        episode = Episode(game, self.seed + later)
        states = [episode.state]
        while len(states) <= (LONGEST if self.moves is None else self.moves):
            action = game.best_action(states[-1])
            if action is None or episode.act(action).terminated:
                break
            states.append(episode.state)
        return states[len(states) // 2 if self.moves is None else -1]


ITEMS = (
    GalleryItem("2048", "2048", "2048", "Slide the board; equal tiles merge.", seed=31, moves=40),
    GalleryItem(
        "shisensho",
        "Shisen-Sho",
        "shisensho",
        "Name two equal tiles connected by a path with at most two turns.",
        unused=("variety",),
        moves=4,
    ),
    GalleryItem(
        "shisensho_images",
        "Shisen-Sho with images",
        "shisensho",
        "The same with images that match by class: here, handwritten digits.",
        overrides={"tiles": "digits"},
        unused=("colours", "shapes", "similarity"),
        moves=4,
    ),
    GalleryItem("swap", "Swap", "swap", "Swap two adjacent tiles so that three or more equal ones line up.", moves=0),
    GalleryItem(
        "geospot",
        "Geospot",
        "geospot",
        "Name the city marked on a map of city lights.",
        caption=lambda _, state: f"{state.city}, {state.country}",
    ),
    GalleryItem(
        "nlvr2",
        "NLVR2",
        "nlvr2",
        "Say whether a statement about two images is true.",
        caption=lambda _, state: str(state.statement),
    ),
    GalleryItem(
        "vqa",
        "VQA",
        "vqa",
        "Answer a question about an image with a word or a number.",
        seed=9,
        caption=lambda _, state: str(state.question),
    ),
    GalleryItem(
        "caption",
        "Caption",
        "caption",
        "Describe a photograph; scored by keywords, with a penalty for long lists.",
        seed=14,
        caption=lambda game, state: game.describe(state),
    ),
)


def items_of(names: Sequence[str] = ()) -> list[GalleryItem]:
    """Return the items of named games, by default of all installed games."""
    known = {item.name: item for item in ITEMS}
    if names:
        return [known.get(name) or _other(name) for name in names]
    shown = {game_class(item.game) for item in ITEMS}
    loaded, failed = load_games()
    others = [_other(game_id) for game_id, found in loaded.items() if found not in shown]
    return [*ITEMS, *others, *(GalleryItem(game_id, game_id, game_id, "") for game_id in failed)]


def _other(name: str) -> GalleryItem:
    """Make an item from the class of a game, or find one above by game id."""
    found = game_class(name)
    same = (item for item in ITEMS if game_class(item.game) is found)
    return next(same, GalleryItem(found.name, title_of(found), name, about(found)))


def title_of(found: type[AnyGame]) -> str:
    """Name of a game in headings."""
    return found.title or found.name.capitalize()


def about(found: type[AnyGame]) -> str:
    """First line of the docstring of a game."""
    return (found.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True)
class Level:
    """A state of an item at one level of one difficulty, with the other at 3."""

    item: GalleryItem
    difficulty: Difficulty
    level: int
    game: AnyGame
    state: Any

    @property
    def overrides(self) -> list[str]:
        """Describe the differences from level 3."""
        config = type(self.game).Config
        published: Any = config.at(**self.item.overrides)
        names = set(config.level_values(self.difficulty)) - set(self.item.unused)
        values = {name: getattr(self.game.config, name) for name in config.model_fields if name in names}
        return [_config_field(name, value) for name, value in values.items() if value != getattr(published, name)]


def levels_of(item: GalleryItem, difficulty: Difficulty, size: int) -> list[Level]:
    """Return an item at the five levels of one difficulty."""
    found = []
    for level in LEVELS:
        perception, reasoning = (level, 3) if difficulty == "perception" else (3, level)
        game = item.at(size, perception, reasoning)
        later = 0 if difficulty == "perception" else level - 3
        found.append(Level(item, difficulty, level, game, item.position(game, later)))
    return found


def _config_field(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


@dataclass(frozen=True)
class Example:
    """A response with its score and a title."""

    title: str
    response: str
    scored: Scored[Any, Any]


def examples(item: GalleryItem, game: AnyGame, state: Any) -> list[Example]:
    """Return responses to a state from best to worst; none without an oracle.

    The wrong one is the oracle's response to another state; the last names the oracle's action in prose.
    """
    action = game.best_action(state)
    if action is None:
        return []

    def score(title: str, response: str) -> Example:
        return Example(title, response, score_response(game, state, response, np.random.default_rng(item.seed)))

    others = [item.position(game, 1 + i) for i in range(OTHER_STATES)]
    blind = (score("correct for another image", _best(game, other)) for other in others)
    return [
        score("from the oracle", _best(game, state)),
        min(blind, key=_rank),
        score(
            "the oracle's answer, not in the response format",
            f"{game.explain(state, action)} My answer is {game.format(action)}.",
        ),
    ]


def _best(game: AnyGame, state: Any) -> str:
    return game.respond(state, game.best_action(state))


def _rank(example: Example) -> tuple[bool, float, float]:
    """Sort key: illegal first, then by reward and perception."""
    scored = example.scored
    return scored.outcome is Outcome.PLAYED, scored.game, scored.perception.partial if scored.perception else 0.0
