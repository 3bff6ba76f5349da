"""Gallery items: games in representative states, with captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vlmgym.sandbox.core.config import LEVELS, Difficulty
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import game_class, load_games, make_game

AnyGame = Game[Any, Any]


@dataclass(frozen=True)
class Exhibit:
    """A game in the gallery.

    Attributes:
        name: Name on the command line.
        title: Heading.
        game: Name or id of the game.
        about: One-sentence description of a turn.
        overrides: Config fields that are the same at every level.
        without: Config fields without effect here.
        seed: Seed of the state at level 3; reasoning levels use neighbouring seeds.
        moves: Oracle moves before the shown state; fewer if the game would end.
        words: Caption for a state.
    """

    name: str
    title: str
    game: str
    about: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    seed: int = 7
    moves: int = 0
    words: Callable[[AnyGame, Any], str] | None = None

    def at(self, size: int, perception: int = 3, reasoning: int = 3) -> AnyGame:
        """Make the game at given levels with images of `size` pixels."""
        return make_game(self.game, perception, reasoning, size=size, **self.overrides)

    def position(self, game: AnyGame, later: int = 0) -> Any:
        """Return a state that has not ended; `later` is added to the seed."""
        episode = Episode(game, self.seed + later)
        state = episode.state
        for _ in range(self.moves):
            action = game.best_action(state)
            if action is None or episode.act(action).terminated:
                break
            state = episode.state
        return state


EXHIBITS = (
    Exhibit("2048", "2048", "2048", "Slide the board; equal tiles merge.", seed=31, moves=40),
    Exhibit(
        "shisensho",
        "Shisen-Sho",
        "shisensho",
        "Name two equal tiles that a path of at most two turns joins.",
        without=("variety",),
        moves=4,
    ),
    Exhibit(
        "shisensho_images",
        "Shisen-Sho with images",
        "shisensho",
        "The same with images that match by what they show: here, handwritten digits.",
        overrides={"tiles": "digits"},
        without=("colours", "shapes", "similarity"),
        moves=4,
    ),
    Exhibit("swap", "Swap", "swap", "Swap two adjacent tiles so that three or more equal ones line up."),
    Exhibit(
        "geospot",
        "Geospot",
        "geospot",
        "Say which city a map of lights marks.",
        words=lambda _, state: f"{state.city}, {state.country}",
    ),
    Exhibit(
        "nlvr2",
        "NLVR2",
        "nlvr2",
        "Say whether a statement about two images is true.",
        words=lambda _, state: str(state.statement),
    ),
    Exhibit(
        "vqa",
        "VQA",
        "vqa",
        "Answer a question about an image in a word or a number.",
        seed=9,
        words=lambda _, state: str(state.question),
    ),
    Exhibit(
        "caption",
        "Caption",
        "caption",
        "Describe a photograph; what it shows counts, long lists do not.",
        seed=14,
        words=lambda game, state: game.describe(state),
    ),
)


def exhibits_of(names: Sequence[str] = ()) -> list[Exhibit]:
    """Return the exhibits of named games, by default of all installed games.

    Raises:
        UsageError: There is no such game.
    """
    known = {exhibit.name: exhibit for exhibit in EXHIBITS}
    if names:
        return [known.get(name) or _other(name) for name in names]
    shown = {game_class(exhibit.game) for exhibit in EXHIBITS}
    loaded, failed = load_games()
    others = [_other(game_id) for game_id, found in loaded.items() if found not in shown]
    return [*EXHIBITS, *others, *(Exhibit(game_id, game_id, game_id, "") for game_id in failed)]


def _other(name: str) -> Exhibit:
    """Make an exhibit for a game that is not listed above, or find one by game id."""
    found = game_class(name)
    about = (found.__doc__ or "").strip().partition("\n")[0]
    same = (exhibit for exhibit in EXHIBITS if game_class(exhibit.game) is found)
    return next(same, Exhibit(found.name, found.name, name, about))


@dataclass(frozen=True)
class Level:
    """A state of an exhibit at one level of one difficulty, with the other at 3."""

    exhibit: Exhibit
    difficulty: Difficulty
    level: int
    game: AnyGame
    state: Any

    @property
    def overrides(self) -> list[str]:
        """Describe the differences from level 3."""
        config = type(self.game).Config
        published: Any = config.at(**self.exhibit.overrides)
        names = set(config.levels.get(self.difficulty, {}).get(self.level, {})) - set(self.exhibit.without)
        values = {name: getattr(self.game.config, name) for name in config.model_fields if name in names}
        return [_config_field(name, value) for name, value in values.items() if value != getattr(published, name)]


def levels_of(exhibit: Exhibit, difficulty: Difficulty, size: int) -> list[Level]:
    """Return an exhibit at the five levels of one difficulty."""
    found = []
    for level in LEVELS:
        perception, reasoning = (level, 3) if difficulty == "perception" else (3, level)
        game = exhibit.at(size, perception, reasoning)
        later = 0 if difficulty == "perception" else level - 3
        found.append(Level(exhibit, difficulty, level, game, exhibit.position(game, later)))
    return found


def _config_field(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"
