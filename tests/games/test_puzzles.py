"""Oracles of puzzles solve every level with the fewest moves; impossible states and configs are rejected."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from tests.games.puzzles import fewest_turns, oracle_turns, scores
from vlmgym import make_game
from vlmgym.errors import StateError, UsageError

SOLVED = ("jigsaw", "lightsout", "maze", "pairs", "parking", "sliding", "snake", "sokoban", "solitaire", "sudoku")


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("game_id", SOLVED)
def test_oracles_solve_every_level(game_id: str, level: int) -> None:
    assert scores(make_game(game_id, reasoning=level), range(3)) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize(
    ("game_id", "position", "config"),
    [
        ("jigsaw", "board", {"rows": 1, "columns": 5}),
        ("lightsout", "lit", {"rows": 3, "columns": 3, "presses": 5}),
        ("maze", "player", {"reasoning": 1}),
        ("maze", "player", {"reasoning": 5}),
        ("parking", "offsets", {"reasoning": 2}),
        ("sliding", "tiles", {"rows": 2, "columns": 3, "shuffle": 5}),
        ("sliding", "tiles", {"rows": 2, "columns": 3, "shuffle": 60}),
        ("sokoban", "board", {"reasoning": 1}),
        ("sokoban", "board", {"reasoning": 3}),
    ],
)
def test_oracles_need_the_fewest_turns(game_id: str, position: str, config: dict[str, Any]) -> None:
    game = make_game(game_id, **config)
    for seed in range(6):
        state = game.start(np.random.default_rng(seed))
        assert oracle_turns(game, state) == fewest_turns(game, state, attrgetter(position))


SHAPES: dict[str, dict[str, Any]] = {
    "jigsaw": {},
    "lightsout": {"rows": 4, "columns": 4},
    "maze": {"rows": 2, "columns": 3},
    "minesweeper": {"rows": 4, "columns": 4, "mines": 1, "compared": 0},
    "pairs": {"rows": 2, "columns": 4},
    "parking": {"rows": 4, "columns": 4, "vehicles": 2},
    "rotation": {"reasoning": 2},
    "shisensho": {"rows": 2, "columns": 2},
    "sliding": {"rows": 2, "columns": 3},
    "snake": {"rows": 4, "columns": 5, "food": 6},
    "sokoban": {"rows": 5, "columns": 6, "boxes": 1},
    "solitaire": {"rows": 3, "columns": 3},
    "sudoku": {"reasoning": 1},
}
CORRIDORS = ((2, 10, 8), (2, 10, 8))
"""A maze of two rows of cells with no opening between the rows."""
CARS = [{"line": 1, "length": 2, "horizontal": True}, {"line": 1, "length": 2, "horizontal": False}]


@pytest.mark.parametrize(
    ("game_id", "change", "reason"),
    [
        *(("2048", {"board": ((tile, 0, 0, 0), *[(0,) * 4] * 3)}, "is not a tile") for tile in (1, 6, -2, 2**63)),
        *(("2048", {"board": board}, "board") for board in ([[0] * 4] * 3, [[0] * 4] * 3 + [[0] * 3], [[2.5] * 4] * 4)),
        ("fallingblocks", {"well": ("0" * 7,) * 9}, "a row is full"),
        ("fallingblocks", {"well": ("x......",) * 9}, "'x' is not the content of a cell"),
        ("fallingblocks", {"well": ("." * 7,) * 10}, "the board is not"),
        ("fallingblocks", {"piece": 7}, "there is no piece 7"),
        ("fourinarow", {"board": (".......",) * 4 + ("X......", ".O.....")}, "above a free cell"),
        ("jigsaw", {"board": [[0, 1, 2], [3, 4, 5]]}, "not 3 x 3"),
        ("jigsaw", {"board": [[0, 1, 2]] * 3}, "must be 0 to 8, each once"),
        ("jigsaw", {"picture": -1}, "picture must be"),
        ("lightsout", {"lit": 1}, "not a solvable board"),
        ("lightsout", {"lit": 2**16}, "not a solvable board"),
        ("lightsout", {"lit": -1}, "not a solvable board"),
        ("lightsout", {"lit": 0, "par": 0}, "par must be 1 to 16"),
        ("maze", {"openings": CORRIDORS, "player": (0, 3)}, "the player is outside"),
        ("maze", {"openings": CORRIDORS}, "a cell cannot be reached"),
        ("maze", {"openings": ((2, 10, 8), (2, 10, 9))}, "open in only one"),
        ("maze", {"openings": ((2, 26, 8), (2, 10, 8))}, "not a sum"),
        ("minesweeper", {"board": ["...."] * 3 + ["...2"], "mines": [10], "hidden": 15}, "cell 15 cannot be '2'"),
        ("minesweeper", {"board": ["...."] * 2 + ["..1.", "...1"], "mines": [10], "hidden": 15}, "cell 10 cannot be"),
        ("minesweeper", {"board": ["*..."] + ["...."] * 3, "mines": [10], "hidden": 15}, "cell 0 cannot be"),
        ("pairs", {"cards": ((1, 1, 1, 1), (2, 2, 3, 3))}, "exactly one partner"),
        ("pairs", {"cards": ((1, 2, 3, 4),) * 2, "sides": ("!!!.", "....")}, "do not follow from the rules"),
        ("pairs", {"cards": ((1, 2, 3, 4),) * 2, "sides": ("!...", "!...")}, "do not follow from the rules"),
        ("pairs", {"cards": ((1, 2, 3, 4),) * 2, "sides": ("=...", "....")}, "do not follow from the rules"),
        ("parking", {"vehicles": CARS, "offsets": (0, 0)}, "two vehicles overlap"),
        ("parking", {"vehicles": CARS, "offsets": (2, 3)}, "not 2 vehicles"),
        ("rotation", {"answer": 2}, "not the only rotated figure"),
        ("rotation", {"answer": 9}, "not one of the choices"),
        ("rotation", {"angles": (0,)}, "must have 4 figures of 5 cells"),
        ("shisensho", {"board": (("empty", "empty"),)}, "the board is not 2 x 2"),
        ("shisensho", {"board": (("empty", "empty"), ("empty",))}, "the board is not 2 x 2"),
        ("shisensho", {"board": (("empty", "empty"), ("empty", "red cross"))}, "there is no tile 'red cross'"),
        ("shisensho", {"board": (("empty", "empty"), ("empty", 3))}, "board"),
        ("sliding", {"tiles": (2, 1, 3, 4, 5, 0)}, "cannot be put in order"),
        ("sliding", {"tiles": (1, 2, 3, 4, 4, 0)}, "not the tiles"),
        ("snake", {"body": ((1, 2), (1, 1)), "food": (0, 0)}, "does not fit"),
        ("snake", {"body": ((1, 4), (1, 5), (1, 6)), "food": (0, 0)}, "does not fit"),
        ("snake", {"body": ((1, 2), (1, 0), (1, 1)), "food": (0, 0)}, "not connected or crosses itself"),
        ("snake", {"body": ((1, 2), (1, 1), (1, 0)), "food": (1, 1)}, "the food is inside the snake"),
        *(
            ("sokoban", {"board": ("######", row, *["######"] * 3)}, "not a walled room")
            for row in ("#@$ ##", "#@@$.#", "#@$.x#", "#@$. .", "# $. #")
        ),
        ("solitaire", {"base": "Kh", "board": (("2c", "5d", "3s"), ("Kh", "Qd", ""))}, "a card occurs twice"),
        ("solitaire", {"base": "Kh", "board": (("", "5d", "3s"), ("As", "", ""))}, "below an empty cell"),
        ("solitaire", {"base": "Kh", "board": (("1c", "5d", "3s"),) * 2}, "'1c' is not a card"),
        ("sudoku", {"solution": ("1234",) * 4}, "twice in a row, column or box"),
        ("sudoku", {"solution": ("1243", "4321", "2134", "3412")}, "does not agree"),
        ("sudoku", {"mistakes": -1}, "mistakes"),
        ("tictactoe", {"board": ("Z..", "...", "...")}, "'Z' is not the content of a cell"),
        ("tictactoe", {"board": ("XX.", "...", "...")}, "have not taken turns"),
        ("tictactoe", {"board": ("XXX", "OOO", "...")}, "both players have a line"),
    ],
)
def test_impossible_states_are_rejected(game_id: str, change: dict[str, Any], reason: str) -> None:
    game = make_game(game_id, **SHAPES.get(game_id, {}))
    start = game.to_data(game.start(np.random.default_rng(0)))
    assert game.to_data(game.from_data(start)) == start
    with pytest.raises(StateError, match=f"invalid state of {game_id}: .*{reason}"):
        game.from_data({**start, **change})


@pytest.mark.parametrize(
    ("game_id", "config", "message"),
    [
        ("parking", {"rows": 4, "columns": 4, "vehicles": 14}, "14 vehicles do not fit on 4 x 4 cells; at most 6 do"),
        ("sokoban", {"rows": 5, "columns": 5, "boxes": 4}, "4 boxes need at least 28 cells within the outer walls"),
        (
            "minesweeper",
            {"rows": 24, "columns": 24, "mines": 200},
            "at most 115 fit with compared=2",
        ),
        ("sudoku", {"search": True, "clues": 30}, "puzzles of 9 x 9 cells that need a search have at most 28 clues"),
        ("sudoku", {"search": True, "rows": 4, "columns": 4, "clues": 0}, "need a search have 6 x 6 or 9 x 9 cells"),
        ("tracking", {"choices": 6, "speed": 300}, "6 balls can be followed at a speed of at most 240, got 300"),
        ("qa/lightsout", {"kinds": ("count",)}, "no question of the kinds count fits lightsout; the kinds are cell"),
        ("2048", {"goal": 12}, "goal"),
        ("2048", {"goal": 2**21}, "goal"),
        ("2048", {"goal": "16"}, "goal"),
        ("caption", {"keywords": 5, "words": 4}, r"number of keywords \(5\), got 4"),
        ("lightsout", {"rows": 2, "columns": 2, "presses": 5}, "presses must be at most rows x columns = 4"),
        ("pairs", {"rows": 3, "columns": 3}, "must be even"),
        ("shisensho", {"rows": 5, "columns": 5}, "even, got 5 x 5"),
        ("shisensho", {"colours": 2, "shapes": 4}, "need 9 kinds of tile, but .* make 8"),
        ("shisensho", {"copies": 3}, "copies: .* 2 or 4 .*got 3"),
        ("snake", {"rows": 4, "columns": 4, "food": 14}, "food must be at most 13"),
        ("solitaire", {"rows": 8, "columns": 8}, "at most 44 can be dealt"),
        ("sudoku", {"rows": 5, "columns": 5, "clues": 9}, "4 x 4, 6 x 6 or 9 x 9"),
        ("swap", {"colours": 2, "shapes": 1}, "2 colours x 1 shapes make 2 kinds .* at least 3"),
    ],
)
def test_impossible_configs_are_rejected(game_id: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_game(game_id, **config)
