"""Predictions of the board after the move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playing import summarise
from vlmgym import RewardConfig, UsageError, make_game
from vlmgym.evaluation import evaluate
from vlmgym.evaluation.rescore import rescored
from vlmgym.evaluation.tables import summary_rows
from vlmgym.policies import StatePolicy
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.perception import compare_changes, read_grid
from vlmgym.sandbox.core.reward import Outcome, score_response
from vlmgym.sandbox.registry import game_class, game_ids

WEIGHTED = RewardConfig(game_weight=0.0, prediction_weight=2.0)
HIDING = {"minesweeper-v0": {}, "pairs-v0": {}, "maze-v0": {"fog": 2}}
UNCHANGED = {"differences-v0", "wordsearch-v0"}
BOARDS = {name for name in game_ids() if issubclass(game_class(name), BoardGame)}
GAMES = sorted(BOARDS - UNCHANGED - {"minesweeper-v0", "pairs-v0"})

words = st.sampled_from(["0", "2", "4"])
grids = st.lists(st.lists(words, min_size=3, max_size=3), min_size=2, max_size=2)


def text(grid: list[list[str]]) -> str:
    return "\n".join(map(", ".join, grid))


@given(grids, grids)
def test_only_changes_count(before: list[list[str]], after: list[list[str]]) -> None:
    assert compare_changes(text(before), text(after), text(after)) == (1.0, 1.0)
    copied = compare_changes(text(before), text(after), text(before))
    assert copied == ((1.0, 1.0) if before == after else (0.0, 0.0))
    assert compare_changes(text(before), text(after), "") == (0.0, 0.0)


def test_changes_that_do_not_happen_are_wrong() -> None:
    before, after = "0, 2, 2\n4, 0, 0", "4, 0, 0\n4, 0, 0"
    assert compare_changes(before, after, "4, 0, 2\n4, 0, 0") == (2 / 3, 0.0)
    assert compare_changes(before, after, "4, 0, 0\n4, 0, 8") == (3 / 4, 0.0)
    assert compare_changes(before, after, "4, 0, 0\n4, 0, 0, 0") == (3 / 4, 0.0)
    assert compare_changes(before, after, "4, 0, 0\n") == (3 / 6, 0.0)


@pytest.mark.parametrize("name", GAMES)
def test_demonstrations_predict_what_the_rules_determine(name: str) -> None:
    """Predictions are exact, and equal to the next board if chance plays no part."""
    game: Any = make_game(name, 1, 1, prediction=True)
    state, rng, scores = game.start(np.random.default_rng(0)), np.random.default_rng(0), []
    for _ in range(8):
        action = game.best_action(state)
        scored = score_response(game, state, game.respond(state, action), rng, WEIGHTED)
        assert (scored.format, scored.outcome) == (1.0, Outcome.PLAYED)
        assert scored.total == (0.0 if scored.prediction is None else 2.0)
        prediction, after = game.predict(state, [action]), game.describe(scored.next_state)
        scores.append(scored.prediction)
        if game.name == "2048":
            new = [pair for pair in zip(cells(prediction), cells(after)) if pair[0] != pair[1]]
            assert [was for was, _ in new] == ["0"]
        elif game.name in ("tictactoe", "fourinarow"):
            replies = [was for was, cell in zip(cells(prediction), cells(after)) if was != cell]
            assert replies == ["empty"] or scored.terminated
        elif game.name == "fallingblocks":
            above = game.above
            assert read_grid(prediction) == [*read_grid(game.describe(state))[:above], *read_grid(after)[above:]]
        elif game.name != "swap":
            assert prediction in (None, after)
        elif scored.info["cascade"] == 1 and not scored.info["reshuffled"]:
            assert all(was in ("new", cell) for was, cell in zip(cells(prediction), cells(after)))
            assert cells(prediction).count("new") == scored.info["cleared"]
        if scored.terminated:
            break
        state = scored.next_state
    assert any(scores)


def cells(grid: str) -> list[str]:
    return [cell for row in read_grid(grid) for cell in row]


def test_invalid_answers_and_copies_earn_nothing() -> None:
    game: Any = make_game("sokoban", prediction=True)
    state = game.start(np.random.default_rng(0))
    legal = game.legal_actions(state)
    illegal = next(action for action in range(4) if action not in legal)
    board, after = game.describe(state), game.predict(state, [legal[0]])
    for answer, prediction, expected in (
        (game.answer.format(legal[0]), after, 1.0),
        (game.answer.format(legal[0]), board, 0.0),
        (game.answer.format(illegal), board, 0.0),
        ("sideways", board, 0.0),
    ):
        response = f"<prediction>{prediction}</prediction><answer>{answer}</answer>"
        scored = score_response(game, state, response, np.random.default_rng(0), WEIGHTED)
        assert scored.prediction == (expected, expected)
        assert scored.total == 2 * expected
    plain = make_game("sokoban")
    assert score_response(plain, state, response, np.random.default_rng(0), WEIGHTED).prediction is None


def test_copies_of_unchanged_boards_earn_nothing() -> None:
    """A wrong number in a Sudoku is legal and changes nothing."""
    game: Any = make_game("sudoku", prediction=True)
    state = game.start(np.random.default_rng(0))
    legal = game.legal_actions(state)
    wrong = next((row, column, number) for row, column, number in legal if state.solution[row][column] != str(number))
    response = game.respond(state, wrong)
    assert game.describe(state) in response.partition("<prediction>")[2]
    scored = score_response(game, state, response, np.random.default_rng(0), WEIGHTED)
    assert (scored.outcome, scored.prediction, scored.total) == (Outcome.PLAYED, None, 0.0)


def test_several_actions_are_predicted_together() -> None:
    game: Any = make_game("sliding", prediction=True, actions_per_turn=3)
    state = game.start(np.random.default_rng(1))
    best = game.best_action(state)
    response = game.respond(state, best, *game.follow_up(state, best))
    scored = score_response(game, state, response, np.random.default_rng(0), WEIGHTED)
    assert scored.action == (best, *game.follow_up(state, best))
    assert (scored.format, scored.prediction, scored.total) == (1.0, (1.0, 1.0), 2.0)
    assert game.describe(scored.next_state) in response


class Copying(StatePolicy):
    """Plays the oracle's move, and predicts in every second turn that nothing changes."""

    name = "copying"

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        response: str = game.respond(state, game.best_action(state))
        if rng.random() < 0.5:
            return response
        start, _, rest = response.partition("<prediction>")
        return f"{start}<prediction>{game.describe(state)}</prediction>{rest.partition('</prediction>')[2]}"


def test_runs_record_predictions() -> None:
    game: Any = make_game("swap", size=200, prediction=True)
    assert f"<prediction>{game.prediction_form}</prediction>\n<answer>" in game.prompt(
        game.start(np.random.default_rng(0))
    )
    records = evaluate(game, Copying(), 2, max_turns=12, workers=0, reward=WEIGHTED)
    parts = [turn.reward.prediction or 0.0 for record in records for turn in record.turns]
    assert {0.0, 1.0} == {*parts}
    summary = summarise(records)
    assert summary.prediction_accuracy == summary.prediction_exact_match == pytest.approx(np.mean(parts))
    assert "of changed cells correct" in dict(summary_rows(summary))["prediction"]
    rewards = [turn.reward.total for turn in rescored(records[0], RewardConfig(prediction_weight=1.0)).turns]
    assert rewards == [turn.reward.game + part for turn, part in zip(records[0].turns, parts)]


def test_where_predictions_are_asked_for() -> None:
    assert make_game("sokoban").fingerprint != make_game("sokoban", prediction=True).fingerprint
    assert "<prediction>" not in make_game("sokoban").prompt(make_game("sokoban").start(np.random.default_rng(0)))
    for name, settings in HIDING.items():
        with pytest.raises(UsageError, match="hides what a move leads to"):
            make_game(name, prediction=True, **settings)
    for name in UNCHANGED:
        with pytest.raises(UsageError, match="no move changes the board"):
            make_game(name, prediction=True)
