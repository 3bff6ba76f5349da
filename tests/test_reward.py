"""Scoring of responses, and of described grids against the true grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import EpisodeEnded
from vlmgym.sandbox.answers.choice import DIRECTIONS
from vlmgym.sandbox.core.perception import compare_grids
from vlmgym.sandbox.core.response_format import compose
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored, Shaping, score_action, score_response, shape
from vlmgym.sandbox.games.game2048 import Game2048, State2048

PAIR = State2048(((2, 2, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)))
STUCK = State2048(((2, 4, 2, 4), (4, 2, 4, 2), (2, 4, 2, 4), (4, 2, 4, 2)))
PARTS = RewardConfig(game_weight=2.0, format_weight=0.5, perception_weight=0.25)


@pytest.fixture
def game() -> Game2048:
    game = make_game("2048")
    assert isinstance(game, Game2048)
    return game


def score(game: Game2048, response: str, **config: Any) -> Scored[State2048, int]:
    return score_response(game, PAIR, response, np.random.default_rng(0), RewardConfig(**config))


def saying(game: Game2048, action: str) -> str:
    return compose(game.describe(PAIR), "because", action)


def test_a_legal_action_is_played(game: Game2048) -> None:
    rng = np.random.default_rng(0)
    scored = score_response(game, PAIR, saying(game, "left"), rng, PARTS)
    step = game.step(PAIR, DIRECTIONS.index("left"), np.random.default_rng(0))
    assert scored.outcome is Outcome.PLAYED
    assert (scored.action, scored.game, scored.format, scored.perception) == (3, 4.0, 1.0, (1.0, 1.0))
    assert scored.total == 2.0 * 4.0 + 0.5 + 0.25
    assert (scored.next_state, scored.terminated, scored.feedback) == (step.state, False, "")
    assert rng.bit_generator.state != np.random.default_rng(0).bit_generator.state


@pytest.mark.parametrize(
    ("answer", "outcome", "action", "feedback"),
    [
        ("up", Outcome.ILLEGAL, 0, "sliding up changes nothing"),
        ("7", Outcome.ILLEGAL, 7, "7 is not an action"),
        ("forward", Outcome.UNPARSABLE, None, "'forward' is not one of"),
        ("", Outcome.UNPARSABLE, None, "the answer is empty"),
        ("up</answer><answer>left", Outcome.UNPARSABLE, None, "2 <answer> sections"),
    ],
)
def test_invalid_responses_change_nothing(
    game: Game2048, answer: str, outcome: Outcome, action: int | None, feedback: str
) -> None:
    rng = np.random.default_rng(0)
    scored = score_response(game, PAIR, saying(game, answer), rng, PARTS)
    assert (scored.outcome, scored.action) == (outcome, action)
    assert feedback in scored.feedback
    assert scored.next_state is PAIR
    assert not scored.terminated
    assert scored.game == 0.0
    assert scored.perception == (1.0, 1.0)
    assert scored.total == 0.5 * scored.format + 0.25
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_perception_modes(game: Game2048) -> None:
    almost = compose(game.describe(PAIR).replace("2, 2", "2, 4"), "", "left")
    assert score(game, almost, game_weight=0.0, perception_weight=1.0).total == 15 / 16
    assert score(game, almost, game_weight=0.0, perception_weight=1.0, perception_mode="exact").total == 0.0
    exact = saying(game, "left")
    assert score(game, exact, game_weight=0.0, perception_weight=3.0, perception_mode="exact").total == 3.0


@pytest.mark.parametrize("answer", ["left", "up", "nowhere"])
def test_true_statements_are_rewarded(game: Game2048, answer: str) -> None:
    true = game.explain(PAIR, 3)  # 11 statements
    for thought, share in ((true, 1), (true.replace("2 2", "4 2"), 10 / 11), ("I slide up.", 0), ("Hm.", 0)):
        scored = score(game, compose(game.describe(PAIR), thought, answer), game_weight=0.0, reasoning_weight=2.0)
        assert scored.total == pytest.approx(2.0 * share)


@pytest.mark.parametrize(("shaping", "part"), [("raw", 4.0), ("sign", 1.0), ("log2", math.log2(5.0))])
def test_shaping_changes_only_the_total(game: Game2048, shaping: Shaping, part: float) -> None:
    scored = score(game, saying(game, "left"), shaping=shaping, game_weight=10.0)
    assert scored.total == pytest.approx(10.0 * part)
    assert scored.game == 4.0


@pytest.mark.parametrize("shaping", ["raw", "sign", "log2"])
def test_penalties_replace_the_shaped_game_part(game: Game2048, shaping: Shaping) -> None:
    config: dict[str, Any] = {"illegal": -3.0, "unparsable": -5.0, "shaping": shaping, "game_weight": 2.0}
    illegal, unparsable = score(game, saying(game, "up"), **config), score(game, "hello", **config)
    assert (illegal.total, unparsable.total) == (-6.0, -10.0)
    assert (illegal.game, unparsable.game) == (0.0, 0.0)
    played = score(game, saying(game, "left"), **config)
    assert played.total == 2.0 * shape(4.0, shaping)


def test_invalid_turns_earn_the_games_own_reward() -> None:
    class Strict(Game2048):
        illegal_reward = -2.0

    for response in ("<answer>up</answer>", "nothing"):
        scored = score(Strict(), response, shaping="sign")
        assert (scored.game, scored.total) == (-2.0, -1.0)


@pytest.mark.parametrize("response", ["<answer>up</answer>", "<answer>9</answer>", "hello", ""])
def test_an_ended_episode_raises(game: Game2048, response: str) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(EpisodeEnded, match="no move is left"):
        score_response(game, STUCK, response, rng)
    with pytest.raises(EpisodeEnded, match="2048 has ended"):
        score_action(game, STUCK, 0, rng)
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_native_actions_have_only_a_game_part(game: Game2048) -> None:
    scored = score_action(game, PAIR, 3, np.random.default_rng(0), PARTS)
    assert (scored.total, scored.game, scored.format, scored.perception) == (8.0, 4.0, 0.0, None)
    illegal = score_action(game, PAIR, 0, np.random.default_rng(0), PARTS)
    assert (illegal.outcome, illegal.next_state, illegal.total) == (Outcome.ILLEGAL, PAIR, 0.0)


TRUTH = "0, 2, 4\n8, 16, 32"


@pytest.mark.parametrize(
    "text",
    [
        TRUTH, "0\t2   4\n8 16 32  ", "| 0 | 2 | 4 |\n| 8 | 16 | 32 |", "[[0, 2, 4],\n [8, 16, 32]]",
        "((0, 2, 4),\r\n(8, 16, 32))", "{'0', '2', '4'}\n\n\n\"8\", \"16\", \"32\"\n",
    ],
)  # fmt: skip
def test_punctuation_and_blanks_are_ignored(text: str) -> None:
    assert compare_grids(TRUTH, text) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("0, 2, 4\n8, 16, 64", 5 / 6), ("0, 2, 4", 3 / 6), ("0, 2\n8, 16", 4 / 6), ("8, 16, 32\n0, 2, 4", 0.0),
        ("0, 2, 4, 0\n8, 16, 32", 6 / 7), ("0, 2, 4\n8, 16, 32\n0, 2, 4", 6 / 9),
        ("The board is:\n0, 2, 4\n8, 16, 32", 0.0), ("0, 2, 4, 8, 16, 32", 3 / 6), ("00, 2.0, 4\n8, 16, 32", 4 / 6),
        ("", 0.0), ("[]", 0.0), (",,,\n|||", 0.0),
    ],
)  # fmt: skip
def test_partial_score_is_the_share_of_the_larger_grid(text: str, partial: float) -> None:
    seen = compare_grids(TRUTH, text)
    assert seen.partial == pytest.approx(partial)
    assert seen.exact == 0.0


words = st.text("abcdefgh 0123456789", min_size=1, max_size=8).map(lambda word: " ".join(word.split())).filter(bool)
grids = st.integers(2, 5).flatmap(
    lambda columns: st.lists(st.lists(words, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


def written(grid: list[list[str]]) -> str:
    return "\n".join(", ".join(row) for row in grid)


@given(grids, grids)
def test_exact_means_equal_grids(truth: list[list[str]], seen: list[list[str]]) -> None:
    partial, exact = compare_grids(written(truth), written(seen))
    assert 0.0 <= partial <= 1.0
    assert exact == float(truth == seen)
    assert (partial == 1.0) == (exact == 1.0)
    assert compare_grids(written(seen), written(truth)) == (partial, exact)
