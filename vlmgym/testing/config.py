"""Checks of a game class: id, docstring, config fields and difficulty levels."""

from __future__ import annotations

from dataclasses import is_dataclass
from itertools import combinations, product

import numpy as np

from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS
from vlmgym.sandbox.registry import game_class, game_ids
from vlmgym.testing.states import AnyGame, Seeds, at_level, observation


def check_identity(game: AnyGame, seeds: Seeds) -> None:
    """Check that the id, if registered, refers to this class, and that the class has a docstring and frozen states.

    Games with the same config must be equal.
    """
    found = type(game)
    if game.id in game_ids():
        assert game_class(game.id) is found, f"the id {game.id} is registered for {game_class(game.id)}"
    assert (found.__dict__.get("__doc__") or "").strip(), "the class has no docstring"
    frozen = is_dataclass(found.State) and found.State.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen, f"the state type {found.State.__name__} is not a frozen dataclass"
    assert found(game.config) == game, "two games with the same config are not equal"


def check_config_fields(game: AnyGame, seeds: Seeds) -> None:
    """Check that every config field is declared with `config_field` or `setting`, and that configs are frozen."""
    game.Config.field_difficulties()
    assert game.config.model_config.get("frozen"), "the config is not frozen"


def check_levels(game: AnyGame, seeds: Seeds) -> None:
    """Check that both difficulties have five different levels, and that all 25 pairs have states that can be drawn."""
    for difficulty in DIFFICULTIES:
        configs = {level: game.Config.at(**{difficulty: level}) for level in LEVELS}
        equal = [f"{one} and {other}" for one, other in combinations(LEVELS, 2) if configs[one] == configs[other]]
        assert not equal, f"levels {', '.join(equal)} of {difficulty} are equal, but all five must differ"
    for perception, reasoning in product(LEVELS, LEVELS):
        made = at_level(type(game), perception, reasoning, size=game.config.size)
        state = made.start(np.random.default_rng(seeds[0]))
        assert made.observation_space.contains(observation(made, state)), (
            f"at levels {perception} and {reasoning} the image is not in the observation space"
        )
