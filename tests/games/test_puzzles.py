"""Oracles of puzzles solve every level with the fewest moves; states that do not fit and impossible configs fail."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from tests.games.puzzles import fewest_turns, oracle_turns, scores
from vlmgym import make_game
from vlmgym.errors import StateError, UsageError

SOLVED = (
    *("corridors", "jigsaw", "laser", "lightsout", "maze", "packing", "pairs", "parking", "pegs", "sliding", "snake"),
    *("sokoban", "solitaire", "stacks", "sudoku"),
)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("game_id", SOLVED)
def test_oracles_solve_every_level(game_id: str, level: int) -> None:
    assert scores(make_game(game_id, reasoning=level), range(3)) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize(
    ("game_id", "position", "config"),
    [
        ("corridors", "player heading", {"reasoning": 1, "size": 64}),
        ("corridors", "player heading", {"reasoning": 4, "size": 64}),
        ("jigsaw", "board", {"rows": 1, "columns": 5}),
        ("lightsout", "lit", {"rows": 3, "columns": 3, "presses": 5}),
        ("maze", "player", {"reasoning": 1}),
        ("maze", "player", {"reasoning": 5}),
        ("parking", "offsets", {"reasoning": 2}),
        ("sliding", "tiles", {"rows": 2, "columns": 3, "shuffle": 5}),
        ("sliding", "tiles", {"rows": 2, "columns": 3, "shuffle": 60}),
        ("sokoban", "board", {"reasoning": 1}),
        ("sokoban", "board", {"reasoning": 3}),
        *(("stacks", "at", {"rows": 4, "columns": columns}) for columns in (3, 4)),
    ],
)
def test_oracles_need_the_fewest_turns(game_id: str, position: str, config: dict[str, Any]) -> None:
    game = make_game(game_id, **config)
    for seed in range(6):
        state = game.start(np.random.default_rng(seed))
        assert oracle_turns(game, state) == fewest_turns(game, state, attrgetter(*position.split()))


@pytest.mark.parametrize(
    ("game_id", "change", "reason"),
    [
        ("2048", {"board": [[0] * 4] * 3}, "board"),
        ("canary", {"digits": ((10,),)}, ""),
        ("corridors", {"player": (0, 9)}, "outside the maze"),
        ("jigsaw", {"board": [[0, 1, 2], [3, 4, 5]]}, "not 3 x 3"),
        ("lightsout", {"lit": 2**16}, "not 4 x 4"),
        ("maze", {"player": (0, 6)}, "IndexError"),
        ("rotation", {"answer": 9}, "not one of the choices"),
        ("sokoban", {"board": ("x" * 8,) * 8}, "cannot be described: KeyError: 'x'"),
    ],
)
def test_states_that_do_not_fit_are_rejected(game_id: str, change: dict[str, Any], reason: str) -> None:
    game = make_game(game_id)
    start = game.to_data(game.start(np.random.default_rng(0)))
    assert game.to_data(game.from_data(start)) == start
    with pytest.raises(StateError, match=f"invalid state of {game_id}: .*{reason}"):
        game.from_data({**start, **change})


@pytest.mark.parametrize(
    ("game_id", "config", "message"),
    [
        ("parking", {"rows": 4, "columns": 4, "vehicles": 14}, "14 vehicles do not fit on 4 x 4 cells; at most 6 do"),
        ("sokoban", {"rows": 5, "columns": 5, "boxes": 4}, "4 boxes need at least 28 cells within the outer walls"),
        ("minesweeper", {"rows": 24, "columns": 24, "mines": 200}, "at most 115 fit with compared=2"),
        ("sudoku", {"search": True, "clues": 30}, "puzzles of 9 x 9 cells that need a search have at most 28 clues"),
        ("tracking", {"choices": 6, "speed": 300}, "6 balls can be followed at a speed of at most 240, got 300"),
        ("qa/lightsout", {"kinds": ("count",)}, "no question of the kinds count fits lightsout; the kinds are cell"),
        ("2048", {"goal": 12}, "goal"),
        ("caption", {"keywords": 5, "words": 4}, r"number of keywords \(5\), got 4"),
        ("lightsout", {"rows": 2, "columns": 2, "presses": 5}, "presses must be at most rows x columns = 4"),
        ("pairs", {"rows": 3, "columns": 3}, "must be even"),
        ("shisensho", {"rows": 5, "columns": 5}, "even, got 5 x 5"),
        ("shisensho", {"colours": 2, "shapes": 4}, "need 9 kinds of tile, but .* make 8"),
        ("snake", {"rows": 4, "columns": 4, "food": 14}, "food must be at most 13"),
        ("solitaire", {"rows": 8, "columns": 8}, "at most 44 can be dealt"),
        ("sudoku", {"rows": 5, "columns": 5, "clues": 9}, "4 x 4, 6 x 6 or 9 x 9"),
        ("swap", {"colours": 2, "shapes": 1}, "2 colours x 1 shapes make 2 kinds .* at least 3"),
    ],
)
def test_impossible_configs_are_rejected(game_id: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_game(game_id, **config)
