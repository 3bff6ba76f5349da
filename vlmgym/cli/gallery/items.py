"""Gallery items: games in representative states, with captions and example responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vlmgym.cli.games import about, title_of
from vlmgym.sandbox.core.config import LEVELS, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome, Scored, score_response
from vlmgym.sandbox.registry import game_class, load_games, make_game

AnyGame = Game[Any, Any]

OTHER_STATES = 4
"""Number of other states whose correct responses are candidates for the wrong response."""
LONGEST = 60
"""Maximum number of moves that the oracle plays; the state halfway through is shown."""


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


@dataclass(frozen=True)
class Example:
    """A response with its score and a title."""

    title: str
    response: str
    scored: Scored[Any, Any]


def examples(game: AnyGame, state: Any) -> list[Example]:
    """Return responses to a state, from best to worst; empty if there is no oracle.

    They are the oracle's response, its response to another state, and prose that names the oracle's action.
    """
    action = game.best_action(state)
    if action is None:
        return []

    def score(title: str, response: str) -> Example:
        return Example(title, response, score_response(game, state, response, np.random.default_rng(game.shown_seed)))

    others = [middle_state(game, 1 + i) for i in range(OTHER_STATES)]
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
    """Return a sort key: responses that were not played first, then by reward and perception."""
    scored = example.scored
    return scored.outcome is Outcome.PLAYED, scored.game, scored.perception.partial if scored.perception else 0.0
