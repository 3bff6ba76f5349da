"""Calibration specs: how the levels of a game are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_game

AnyGame = Game[Any, Any]
Crops = tuple[NDArray[np.float32], list[str]]
"""Crops as float32 (count, pixels) in 0 to 1, and their labels."""


CalibrationPlayer = Literal["random", "random-legal", "naive", "oracle", "questions"]
"""Scripted player; `questions` measures initial states instead of playing."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """Measure of scripted play that should fall, or rise if `rises`, from each reasoning level to the next, harder one.

    Attributes:
        player: Player to measure.
        measure: `score`, `turns`, `ended` (share of episodes that end within the limit of turns), `legal actions`
            (number per state), `share legal` (their share of all actions), `effort` (of the oracle's search), or the
            name of one of the game's metrics or, for `questions`, of one of the spec's facts.
        log: Compare levels by ratios instead of differences.
        rises: The measure should rise with the level.
        label: Name on the page. Default: the measure and the player.
        why: Definition that follows `label` in a sentence. Default: derived from measure and player.
    """

    player: CalibrationPlayer
    measure: str
    log: bool = False
    rises: bool = False
    label: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Effort:
    """Search effort of an oracle.

    Attributes:
        description: Unit of the count.
        count: Count for one state.
        whole: Count only in the initial state, because one plan covers the whole episode.
    """

    description: str
    count: Callable[[AnyGame, Any], int]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Naive:
    """A player with limited knowledge.

    Attributes:
        description: What it knows and does.
        make: Create the player for a game; it maps a state to an action.
    """

    description: str
    make: Callable[[AnyGame], Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class ReadingSpec:
    """How the images of a game are read.

    Attributes:
        unit: Content of one crop, such as `cell`.
        crop: Function that crops a random image.
        haze: Standard deviation of the noise added for the level-1 reader; 1 is the pixel range. Without noise, easy
            levels are read almost perfectly and cannot be compared. None means the result of `margin_haze`.
        training_overrides: Config overrides for the training images of the level-1 reader, so that it knows the kinds
            of all levels.
        aspects: The fitted reader learns each word of a label separately; a label is correct if all words are.
        all_variants: The fitted reader is tested on every variant of a cell's sprite, by cross-validation.
        one_example: The level-1 reader is retrained for each board, on the level-1 board of the same seed.
    """

    unit: str
    crop: Callable[[AnyGame, np.random.Generator], Crops]
    haze: float | None = 0.0
    training_overrides: Mapping[str, Any] = field(default_factory=dict)
    one_example: bool = False
    aspects: bool = False
    all_variants: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """How a game, or one of its configurations, is calibrated.

    Attributes:
        name: Name of the page.
        title: Title of the page.
        game: Name or id of the game.
        criterion: Measure of the reasoning levels.
        reading: How images of the game are read.
        effort: Search effort of the oracle, if it searches.
        overrides: Config fields that are the same at every level.
        turns: Maximum number of turns by player, for all players to measure.
        naive: The naive player, if any.
        facts: Numbers about an initial state, measured as the player `questions`.
        oracle_share: Number of oracle episodes, relative to the other players' number.
        notes: Markdown notes for the page.
    """

    name: str
    title: str
    game: str
    criterion: Criterion
    reading: ReadingSpec
    effort: Effort | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    turns: Mapping[CalibrationPlayer, int] = field(
        default_factory=lambda: {"random": 100, "random-legal": 100, "oracle": 100}
    )
    naive: Naive | None = None
    facts: Callable[[AnyGame, Any], Mapping[str, float]] | None = None
    oracle_share: float = 0.1
    notes: str = ""

    def at(self, perception: int = 3, reasoning: int = 3, **overrides: Any) -> AnyGame:
        """Create the game at the given levels."""
        return make_game(self.game, perception, reasoning, **{**self.overrides, **overrides})
