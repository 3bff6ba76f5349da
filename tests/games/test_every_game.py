"""Behaviour that all games share, beyond the checks of `vlmgym.testing`."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.errors import IllegalAction, StateError, UsageError
from vlmgym.sandbox.core.board_game import BoardGame

BOARD_GAMES = ("2048-v0", "shisensho-v0", "swap-v0")
NAMED_ACTIONS = {"2048-v0": 4, "nlvr2-v0": 2}

GOLDEN = {
    "2048-v0": "d8e645e1d08e394e74bc8c134061234e0def1fdbb93420ada2115273b585fcdf",
    "shisensho-v0": "5e78f2ca0c2de8afb997c036f229c8bb0c9c2b2e3ec212c2bd0dd425c938a5e2",
    "swap-v0": "ab0234e4a43d6302c81135cba520d8c315ea320cbb9df8923a288d731e2aa3ae",
}
"""SHA-256 of the first image of seed 0 with the dark theme and coordinates, in two sizes."""


@pytest.mark.parametrize("game_id", game_ids())
@pytest.mark.parametrize("data", [object(), {1, 2}, b"state", float("nan"), {"board": object()}, [], None])
def test_other_data_are_not_a_state(game_id: str, data: Any) -> None:
    with pytest.raises(StateError, match=f"state of {game_id.removesuffix('-v0')}"):
        make_game(game_id).from_data(data)


@pytest.mark.parametrize("game_id", NAMED_ACTIONS)
def test_unknown_actions_are_not_formatted(game_id: str) -> None:
    game = make_game(game_id)
    for action in (-1, NAMED_ACTIONS[game_id], 99, "x", None, True, 1.0):
        with pytest.raises(UsageError, match=rf"{game.name} must be one of 0 \("):
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
    assert isinstance(game, BoardGame)
    state, size = game.start(np.random.default_rng(0)), max(1, 2 * game.cells_in_action)
    for action in ("x", None, [0] * size, (0.0,) * size, (True,) * size, (0,) * (size + 1), 1.0):
        with pytest.raises(IllegalAction, match="is not an action"):
            game.step(state, action, np.random.default_rng(0))


@pytest.mark.parametrize("game_id", BOARD_GAMES)
def test_golden_images(game_id: str) -> None:
    found = hashlib.sha256()
    for size in (320, 1024):
        game = make_game(game_id, size=size, theme="dark", coordinates=True, origin=1)
        found.update(game.images(game.start(np.random.default_rng(0)))[0].tobytes())
    assert found.hexdigest() == GOLDEN[game_id]
