"""What is calibrated and how: one declaration a game, which says what its levels are judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_game

AnyGame = Game[Any, Any]
Player = Literal["random", "random-legal", "naive", "oracle", "questions"]
"""Who plays; of `questions` nothing is played, and facts about first positions are counted."""
Crops = tuple[NDArray[np.float32], list[str]]
"""Cut-outs as a reader sees them, float32 (number, pixels), 0 to 1, and what is in each, in words."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """What the reasoning levels of a game are judged by; it falls as a game becomes harder.

    Attributes:
        label: What it is called.
        player: Whose episodes.
        measure: Name of a measure of `play`.
        why: What it says about a game's difficulty, as a sentence.
        log: Whether levels are compared by their ratio.
        rises: It rises instead as a game becomes harder.
    """

    label: str
    player: Player
    measure: str
    why: str
    log: bool = False
    rises: bool = False


@dataclass(frozen=True, slots=True)
class Effort:
    """How much an oracle looks at before a move.

    Attributes:
        words: What is counted.
        count: The count for one position.
        whole: Whether the first position of an episode stands for all, because one plan serves the whole episode.
    """

    words: str
    count: Callable[[AnyGame, Any], int]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Naive:
    """A player that knows little, whose score tells how much there is to know.

    Attributes:
        words: What it knows and does.
        make: The player of a game: an action for a position.
    """

    words: str
    make: Callable[[AnyGame], Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class Sight:
    """How images are read.

    Attributes:
        words: What one cut-out is, for instance `cell`.
        cut: Cut-outs of an image, drawn by chance.
        haze: Standard deviation of the noise that the reader of level 1 sees everything through, 1 is full scale. A
            reader with perfect eyes reads all clean images alike; through haze it shows which of them has more to
            spare.
        schooling: Knobs of the images that the reader of level 1 learns from, so that it has seen everything that
            harder levels show.
        aspects: The fitted reader learns each of the words about a cut-out by itself, and is right if all of them are.
        one_example: It learns each board anew, from one image of each kind on the board of the same seed at level 1.
    """

    words: str
    cut: Callable[[AnyGame, np.random.Generator], Crops]
    haze: float = 0.0
    schooling: Mapping[str, Any] = field(default_factory=dict)
    one_example: bool = False
    aspects: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """A game, or one of its settings, that is calibrated.

    Attributes:
        name: Name of the page.
        title: Title of the page.
        game: Name or id of the game.
        criterion: What the reasoning levels are judged by.
        sight: How its images are read.
        effort: How the oracle's effort is counted; None: it searches nothing.
        overrides: Knobs that every level has.
        turns: Turns of an episode, at most, by player.
        naive: The player of that name, where one plays.
        facts: Numbers about a first position, for `questions`.
        costly: The oracle's episodes over those of the others.
        notes: What a reader of the page is to know, as Markdown.
    """

    name: str
    title: str
    game: str
    criterion: Criterion
    sight: Sight
    effort: Effort | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    turns: Mapping[Player, int] = field(default_factory=lambda: {"random": 100, "random-legal": 100, "oracle": 100})
    naive: Naive | None = None
    facts: Callable[[AnyGame, Any], Mapping[str, float]] | None = None
    costly: float = 0.1
    notes: str = ""

    def at(self, perception: int = 3, reasoning: int = 3, **overrides: Any) -> AnyGame:
        """The game at a level of each dial."""
        return make_game(self.game, perception, reasoning, **{**self.overrides, **overrides})
