"""Behaviour that all games share, beyond the checks of `vlmgym.testing`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.errors import IllegalAction, StateError, UsageError
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.registry import game_class

BOARD_GAMES = [game_id for game_id in game_ids() if issubclass(game_class(game_id), BoardGame)]
NAMED_ACTIONS = [game_id for game_id in game_ids() if game_class(game_id).action_names]


@pytest.mark.parametrize("game_id", game_ids())
@pytest.mark.parametrize("data", [object(), {1, 2}, b"state", float("nan"), {"board": object()}, [], None])
def test_non_state_data_is_rejected(game_id: str, data: Any) -> None:
    with pytest.raises(StateError, match=f"state of {game_id.removesuffix('-v0')}"):
        make_game(game_id).from_data(data)


@pytest.mark.parametrize("game_id", NAMED_ACTIONS)
def test_unknown_actions_are_not_formatted(game_id: str) -> None:
    game = make_game(game_id)
    for action in (-1, len(game.action_names), 99, "x", None, True, 1.0):
        with pytest.raises(UsageError, match=rf"{game.name} must be one of 0 \("):
            game.format(action)


@pytest.mark.parametrize("game_id", [id for id in BOARD_GAMES if getattr(game_class(id), "cells_in_action", 0)])
def test_other_data_are_not_formatted_as_cells(game_id: str) -> None:
    game = make_game(game_id)
    for action in (5, None, "x", (), (1, 2, 0), (0, 1.0), (0, 1.0, 2, 3), (True, 0), [0, 0], [0, 0, 0, 1]):
        with pytest.raises(UsageError, match=r"tuple of \d ints"):
            game.format(action)


@pytest.mark.parametrize("game_id", game_ids())
def test_invalid_json_is_rejected_in_one_line(game_id: str) -> None:
    game = make_game(game_id)
    good = game.to_json(game.start(np.random.default_rng(0)))
    for text in ("", "null", "[]", "{}", "x", good[:-1], good + good, "{" * 10_000):
        with pytest.raises(StateError, match=f"invalid state of {game.name}") as caught:
            game.from_json(text)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("game_id", BOARD_GAMES)
def test_an_action_of_another_type_is_illegal(game_id: str) -> None:
    game = make_game(game_id)
    state, size = game.start(np.random.default_rng(0)), len(getattr(game.action_space, "nvec", (0,)))
    for action in ("x", None, [0] * size, (0.0,) * size, (True,) * size, (0,) * (size + 1), 1.0):
        with pytest.raises(IllegalAction, match="is not an action"):
            game.step(state, action, np.random.default_rng(0))
