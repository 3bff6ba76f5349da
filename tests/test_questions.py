"""Questions about games: their answers are true and can be found from the image alone."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from vlmgym import make_dataset, make_game
from vlmgym.errors import StateError, UsageError
from vlmgym.runs.record import GameRecord
from vlmgym.sandbox.core.reward import score_response
from vlmgym.sandbox.questions import KINDS, Questions, QuestionState
from vlmgym.testing import GAME_CHECKS, check_name, run_check

SLOW = ("determinism_over_processes", "environment")
CHECKS = [check for check in GAME_CHECKS if check_name(check) not in SLOW]
BOARDS = ("2048", "swap", "jigsaw", "tictactoe")


def ask(game_id: str, count: int, **config: Any) -> tuple[Questions, list[QuestionState]]:
    game = make_game(f"qa/{game_id}", **{"size": 128, **config})
    assert isinstance(game, Questions)
    return game, [game.start_at(seed, np.random.default_rng(seed)) for seed in range(count)]


@pytest.mark.parametrize("check", CHECKS, ids=check_name)
def test_conformance(check: Any) -> None:
    run_check(check, make_game("qa/jigsaw", size=96), (0, 1))


@pytest.mark.parametrize("game_id", BOARDS)
def test_answers_are_true(game_id: str) -> None:
    game, states = ask(game_id, 60)
    own = game.game
    for state in states:
        inner = own.from_json(state.state)
        grid = [row.split(", ") for row in own.describe(inner).splitlines()]
        legal = {own.answer.format(action) for action in own.legal_actions(inner) or ()}
        words = state.question.replace(", as (row, column)", "").rpartition(" at the left. ")[2].rstrip("?")
        if state.kind == "cell":
            row, column = cell_in(words)
            assert grid[row][column] == state.answer
        elif state.kind == "legal":
            move = words.removeprefix("Is the move ").partition(" legal")[0]
            assert (move in legal) == (state.answer == "yes")
        elif state.kind == "count":
            assert int(state.answer) == (len(legal) // 2 if game_id in ("swap", "jigsaw") else len(legal))
        elif state.kind == "best":
            assert own.answer.parse(state.answer) == own.best_action(inner)
        else:
            where, _, move = words.partition(" after the move ")
            row, column = cell_in(where.rstrip(","))
            after = own.step(inner, own.answer.parse(move), np.random.default_rng(99)).state
            assert own.describe(after).splitlines()[row].split(", ")[column] == state.answer
    missing = {"2048": {"after"}, "swap": {"after"}, "jigsaw": {"count"}}.get(game_id, set())
    assert {state.kind for state in states} == set(KINDS) - missing


def cell_in(words: str) -> tuple[int, int]:
    row, column = words.removeprefix("What is at (").rstrip(")").split(", ")
    return int(row), int(column)


@pytest.mark.parametrize("game_id", ["minesweeper", "pairs"])
def test_hidden_cells_are_not_asked_about(game_id: str) -> None:
    _, states = ask(game_id, 40)
    assert not {"after", "best"} & {state.kind for state in states}


@pytest.mark.parametrize(("game_id", "least"), [("sudoku", 10), ("lightsout", 2), ("jigsaw", 3)])
def test_all_equally_rewarded_best_moves_are_accepted(game_id: str, least: int) -> None:
    game, states = ask(game_id, 8, kinds="best", moves=0)
    most = 0
    for state in states:
        own, rng = game.game, np.random.default_rng(0)
        inner = own.from_json(state.state)
        rewards = {action: own.step(inner, action, rng).reward for action in own.legal_actions(inner) or ()}
        earned = rewards[own.answer.parse(state.answer)]
        for action, reward in rewards.items():
            answer = f"<answer>{own.answer.format(action)}</answer>"
            assert score_response(game, state, answer, rng).game == float(reward >= earned), (state, action)
        most = max(most, sum(reward >= earned for reward in rewards.values()))
    assert most >= least


@pytest.mark.parametrize("game_id", ["fourinarow", "fallingblocks", "sudoku"])
def test_questions_about_cells_say_how_they_are_numbered(game_id: str) -> None:
    for origin in (0, 1):
        game = make_game(f"qa/{game_id}", kinds="cell", perception=4)
        assert isinstance(game, Questions)
        vars(game)["game"] = make_game(game_id, 4, origin=origin)
        for seed in range(3):
            question = game.start_at(seed, np.random.default_rng(seed)).question
            assert f"Rows are numbered from {origin} at the top and columns from {origin} at the left." in question


def test_answers_are_read_as_in_the_game() -> None:
    game, states = ask("swap", 40, kinds="best,cell")
    for state in states:
        answers = {state.answer, f"**{state.answer.upper()}**", f" {state.answer}. "}
        if state.kind == "best":
            answers.add(state.answer.replace("(", "[").replace(")", "]"))
        for answer in answers:
            scored = score_response(game, state, f"<answer>{answer}</answer>", np.random.default_rng(0))
            assert scored.game == 1.0, answer
        assert score_response(game, state, "<answer>pink moon</answer>", np.random.default_rng(0)).game == 0.0


def test_questions_use_levels_and_restore_from_records() -> None:
    game = make_game("qa/jigsaw", perception=5, reasoning=1, kinds=["cell"])
    assert isinstance(game, Questions)
    assert (game.game.config.rows, game.game.config.rotation) == (2, 30)
    record: Any = GameRecord.of(cast(Any, game))
    assert record.game() == game
    rows = make_dataset("qa/tictactoe-v0", 3, size=96)
    assert [row["game"] for row in rows] == ["qa/tictactoe-v0"] * 3
    assert all(row["answer"] for row in rows)


def test_what_cannot_be_asked_is_refused() -> None:
    for game_id, message in (
        ("qa/scenes-questions", "asks questions itself"),
        ("qa/qa/2048", "asks questions"),
        ("qa/x", "unknown"),
    ):
        with pytest.raises(UsageError, match=message):
            make_game(game_id)
    game, (state, *_) = ask("2048", 1)
    with pytest.raises(StateError, match="state of 2048"):
        game.from_data({**game.to_data(state), "state": "{}"})
