"""What trainers share: positions, teachers, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from training.core.advantages import discounted_returns, gae, group_normalised, whitened
from training.core.seats import PlayConfig, Seat, blank, take_seats
from training.core.split import FIRST_HELD_OUT, check_held_out, split_of
from training.core.states import StateConfig, all_actions, sample_state
from training.core.teacher import teach
from vlmgym import make_game
from vlmgym.curriculum import Curriculum
from vlmgym.errors import GenerationError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.records.episode import EpisodeRecord, PolicyRecord
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import RewardConfig, score_action, score_response

SMALL = {"rows": 3, "columns": 3, "goal": 16, "size": 96}
SIGN = RewardConfig(shaping="sign")
numbers = st.floats(-100, 100)


# Positions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mover", ["random-legal", "oracle"])
@pytest.mark.parametrize("name", ["2048", "shisensho", "swap"])
def test_a_position_follows_from_seed_and_index_and_goes_on(name: str, mover: str) -> None:
    game = make_game(name, size=128)
    config = StateConfig(moves=(0, 6), mover=mover)  # type: ignore[arg-type]
    first = [sample_state(game, 3, index, config) for index in range(8)]
    assert first == [sample_state(game, 3, index, config) for index in range(8)]
    assert first != [sample_state(game, 4, index, config) for index in range(8)]
    assert len({snapshot.state for snapshot in first}) > 4
    for snapshot in first:
        episode = Episode.restore(game, snapshot)
        assert episode.ended is None
        assert (episode.turn, episode.score) == (0, 0)


def test_no_position_is_an_ended_one_however_many_moves_are_asked_for() -> None:
    game = make_game("2048", **SMALL)
    for index in range(20):
        snapshot = sample_state(game, 0, index, StateConfig(moves=(500, 500)))
        assert game.ended(game.from_json(snapshot.state)) is None


def test_an_informative_position_is_one_in_which_actions_earn_different_rewards() -> None:
    game = make_game("2048", **SMALL)
    for index in range(50):
        snapshot = sample_state(game, 0, index, StateConfig(moves=(0, 20), informative=True), SIGN)
        state = game.from_json(snapshot.state)
        earned = [score_action(game, state, action, np.random.default_rng(0), SIGN).total for action in range(4)]
        assert sorted(earned) == [0.0, 0.0, 1.0, 1.0]  # tiles merge along one axis only


def test_what_cannot_be_informative_is_said() -> None:
    with pytest.raises(GenerationError, match="all actions earn the same"):
        sample_state(make_game("2048", **SMALL), 0, 0, StateConfig(informative=True), RewardConfig(game_weight=0.0))
    with pytest.raises(UsageError, match="cannot be listed"):
        sample_state(make_game("caption"), 0, 0, StateConfig(informative=True))
    with pytest.raises(UsageError, match="moves are the least and the most"):
        StateConfig(moves=(3, 1))


def test_all_actions_of_a_pair_of_cells_are_listed_once() -> None:
    game = make_game("shisensho", rows=4, columns=4, size=128)
    actions = all_actions(game)
    assert len(actions) == len(set(actions)) == 4**4
    assert set(game.legal_actions(game.start(np.random.default_rng(0))) or ()) <= set(actions)


# Held-out rows --------------------------------------------------------------------------------------------------------


def table_of(folder: Path, rows: int, bad: Sequence[int] = ()) -> str:
    """Questions about images, of which some have no answer."""
    lines = ["image,question,answer"]
    for row in range(rows):
        Image.new("RGB", (32, 32), (row, 0, 0)).save(folder / f"{row}.png")
        lines.append(f"{row}.png,Which one?,{'' if row in bad else row}")
    (folder / "table.csv").write_text("\n".join(lines))
    return str(folder / "table.csv")


def rows_of(game: Any, count: int, *, held_out: bool) -> set[int]:
    states = StateConfig(held_out=0.2)
    found = [sample_state(game, 0, index, states, held_out=held_out).state for index in range(count)]
    return {game.from_json(text).row.index for text in found}


@pytest.mark.parametrize("order", ["rows", "shuffled"])
def test_held_out_rows_are_never_trained_on(tmp_path: Path, order: str) -> None:
    game = make_game("vqa", data=table_of(tmp_path, 40), order=order)
    held_out, training = rows_of(game, 100, held_out=True), rows_of(game, 200, held_out=False)
    assert (len(held_out), len(training)) == (8, 32)
    assert not held_out & training
    assert rows_of(game, 8, held_out=True) == held_out, "the first 8 are not different ones"
    evaluated = [Episode(game, FIRST_HELD_OUT + n).state for n in range(8)]
    assert {state.row.index for state in evaluated if state.row is not None} == held_out


def test_bad_rows_lead_from_neither_side_to_the_other(tmp_path: Path) -> None:
    plain = make_game("vqa", data=table_of(tmp_path, 40), order="rows")
    first = Episode(plain, FIRST_HELD_OUT).state.row.index
    # the last two of the held-out rows, the last of the others, and one of each in between
    bad = [(first + n) % 40 for n in (7, 6, 39, 2, 20)]
    game = make_game("vqa", data=table_of(tmp_path, 40, bad), order="rows", size=64)
    held_out, training = rows_of(game, 100, held_out=True), rows_of(game, 200, held_out=False)
    assert held_out == {(first + n) % 40 for n in (0, 1, 3, 4, 5)}
    assert training == {(first + n) % 40 for n in range(8, 39) if n != 20}


def test_photographs_are_held_out_and_what_is_generated_needs_not_be() -> None:
    photographs, generated = make_game("caption"), make_game("vqa")
    split = split_of(photographs, 0.25)
    assert split is not None
    assert (len(split.held_out), len(split.training)) == (4, 12)
    assert split_of(generated, 0.25) is None
    assert sample_state(generated, 0, 3) == sample_state(generated, 0, 3, held_out=True)


def test_too_few_held_out_rows_are_refused(tmp_path: Path) -> None:
    game = make_game("vqa", data=table_of(tmp_path, 40))
    check_held_out([game], 0.2, 8, "--evaluation.states")
    with pytest.raises(
        UsageError, match=r"of the 40 questions of vqa 8 are held out, and --evaluation.states asks for 9"
    ):
        check_held_out([game], 0.2, 9, "--evaluation.states")
    with pytest.raises(UsageError, match=r"vqa has 40 questions, of which 0\.01 cannot be held out"):
        split_of(game, 0.01)
    with pytest.raises(UsageError, match="held_out is a share of rows"):
        StateConfig(held_out=1.0)


# Teachers -------------------------------------------------------------------------------------------------------------


def test_a_teacher_is_right_as_often_as_it_is_told() -> None:
    game = make_game("2048", **SMALL)
    states = [
        game.from_json(sample_state(game, 0, index, StateConfig(moves=(0, 20), informative=True), SIGN).state)
        for index in range(200)
    ]
    for right, expected in [(1.0, 1.0), (0.4, 0.7), (0.0, 0.5)]:  # half of all random moves are right, too
        rng = np.random.default_rng(0)
        scored = [
            score_response(game, state, teach(game, state, "greedy", right, SIGN, rng), np.random.default_rng(0), SIGN)
            for state in states
        ]
        assert np.mean([one.total for one in scored]) == pytest.approx(expected, abs=0.1)
        assert all(one.format == 1 and one.perception is not None and one.perception.exact == 1 for one in scored)


def test_the_oracle_teaches_where_actions_cannot_be_compared() -> None:
    game = make_game("shisensho", rows=4, columns=4, size=128)
    state = game.start(np.random.default_rng(0))
    text = teach(game, state, "oracle", 1.0, RewardConfig(), np.random.default_rng(0))
    assert score_response(game, state, text, np.random.default_rng(0)).game > 0


# Seats ----------------------------------------------------------------------------------------------------------------


def test_copies_of_a_row_begin_alike_and_have_the_same_chance() -> None:
    game = make_game("2048", **SMALL)
    curriculum = Curriculum.of([game])
    states, play = StateConfig(moves=(0, 9)), PlayConfig(turns=3)
    seats = list(take_seats(curriculum, curriculum.begin(), 0, range(2), 3, play, states, SIGN))
    assert [(seat.row, seat.copy) for seat in seats] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert seats[0].position.prompt == game.prompt(game.start(np.random.default_rng(0)))
    assert seats[0].position.images[0].shape == (96, 96, 3)
    for seat in seats:
        while not seat.over:
            seat.respond(Reply("<answer>up</answer>"))
    one, two = (seat.record(PolicyRecord(name="training"), 3) for seat in seats[:2])
    assert one.turns == two.turns
    assert (one.seed, two.seed) == (0, 1)
    assert EpisodeRecord.model_validate_json(one.model_dump_json()) == one
    assert 1 <= len(one.turns) <= 3


def test_an_episode_that_is_cut_off_shows_what_it_would_have_gone_on_with() -> None:
    curriculum = Curriculum.of([make_game("2048", **SMALL)])
    where = (curriculum, curriculum.begin(), 0, range(3), 1)

    def played(limit: int, turns: int) -> list[Seat]:
        play = PlayConfig(turns=limit, history=2, history_images=1)
        seats = list(take_seats(*where, play, StateConfig(moves=(0, 9)), SIGN, look=blank))
        for seat in seats:
            for move in ("up", "left")[:turns]:
                seat.respond(Reply(f"<answer>{move}</answer>"))
        return seats

    for cut, going in zip(played(2, 2), played(9, 2)):
        assert cut.truncated
        assert not going.over
        assert not going.truncated
        left = cut.beyond()
        assert (left.prompt, left.end) == (going.position.prompt, None)
        assert "left" in left.prompt
        assert len(left.images) == len(going.position.images) == 2
        assert all((image == 128).all() for image in left.images)


def test_an_episode_that_the_game_ended_is_not_cut_off() -> None:
    game = make_game("vqa", size=96)
    curriculum = Curriculum.of([game])
    (seat,) = take_seats(curriculum, curriculum.begin(), 0, range(1), 1, PlayConfig(), StateConfig(), RewardConfig())
    seat.respond(Reply("<answer>1</answer>"))
    assert seat.over
    assert not seat.truncated


# Advantages -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), st.floats(0, 1), st.floats(0, 1), numbers)
def test_gae_equals_its_definition(steps: list[tuple[float, float]], gamma: float, lam: float, after: float) -> None:
    rewards, values = [list(column) for column in zip(*steps)]
    advantages, returns = gae(rewards, values, gamma, lam, after)
    following = [*values[1:], after]
    deltas = [r + gamma * v_next - v for r, v, v_next in zip(rewards, values, following)]
    for t in range(len(steps)):
        expected = sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(steps)))
        assert advantages[t] == pytest.approx(expected, abs=1e-6)
        assert returns[t] == pytest.approx(expected + values[t], abs=1e-6)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), st.floats(0, 1))
def test_gae_at_its_ends_is_what_was_earned_and_one_step(steps: list[tuple[float, float]], gamma: float) -> None:
    rewards, values = [list(column) for column in zip(*steps)]
    np.testing.assert_allclose(gae(rewards, values, gamma, 1.0)[1], discounted_returns(rewards, gamma), atol=1e-6)
    one_step = np.array(rewards) + gamma * np.append(values[1:], 0.0)
    np.testing.assert_allclose(gae(rewards, values, gamma, 0.0)[1], one_step, atol=1e-6)


def test_a_perfect_critic_leaves_no_advantage() -> None:
    rewards = [1.0, -2.0, 0.5]
    advantages, _ = gae(rewards, discounted_returns(rewards, 0.9), 0.9, 0.7)
    np.testing.assert_allclose(advantages, 0.0, atol=1e-12)


@given(st.lists(st.lists(numbers, min_size=1, max_size=6), min_size=1, max_size=5), st.booleans())
def test_a_group_is_its_own_baseline(groups: list[list[float]], scale: bool) -> None:
    rewards = [reward for group in groups for reward in group]
    keys = [number for number, group in enumerate(groups) for _ in group]
    advantages = group_normalised(rewards, keys, scale)
    for number, group in enumerate(groups):
        mine = advantages[[key == number for key in keys]]
        assert mine.sum() == pytest.approx(0.0, abs=1e-6)
        expected = np.array(group) - np.mean(group) if len(group) > 1 else np.zeros(1)
        if scale and len(group) > 1:
            expected = expected / (np.std(group, ddof=1) + 1e-4)
        np.testing.assert_allclose(mine, expected, atol=1e-6)


@given(st.permutations(range(8)))
def test_the_order_of_answers_changes_no_advantage(order: list[int]) -> None:
    rewards, keys = [1.0, 0.0, 2.0, 5.0, 1.0, 1.0, 0.0, 3.0], ["a", "a", "a", "b", "b", "b", "c", "c"]
    straight = group_normalised(rewards, keys)
    shuffled = group_normalised([rewards[place] for place in order], [keys[place] for place in order])
    np.testing.assert_allclose(shuffled, straight[list(order)])


def test_whitened_advantages_have_mean_0_and_deviation_1() -> None:
    white = whitened([1.0, 2.0, 6.0])
    assert (white.mean(), white.std()) == (pytest.approx(0), pytest.approx(1))
    assert whitened([4.0]) == [0.0]
