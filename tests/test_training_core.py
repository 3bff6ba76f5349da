"""Training without a framework: settings, states, experts, rollouts and advantages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tyro.conf import Fixed

from vlmgym import make_game
from vlmgym.curriculum import Curriculum, Pick
from vlmgym.errors import GenerationError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, StateConfig, sample_state, split_questions
from vlmgym.runs.record import EpisodeRecord, PolicyRecord, RewardRecord, StatementsRecord, TurnRecord
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, score_action, score_response
from vlmgym.training.algorithm import Trajectory, gae, normalise_groups
from vlmgym.training.config import EvaluationConfig, ModelConfig, RolloutConfig, TinySize, TrainConfig, UpdateConfig
from vlmgym.training.grpo import Grpo, grpo_advantages
from vlmgym.training.ppo import Ppo
from vlmgym.training.sft import Sft
from vlmgym.training.signal import describe_signal, group_metrics
from vlmgym.training.states import MultiTurnConfig, check_validation_size, expert_response, start_rollouts

SMALL = {"rows": 3, "columns": 3, "goal": 16, "size": 96}
SIGN = RewardConfig(shaping="sign")
numbers = st.floats(-100, 100)


# States ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mover", ["random-legal", "oracle"])
@pytest.mark.parametrize("name", ["2048", "shisensho", "swap"])
def test_states_depend_on_seed_and_index_only(name: str, mover: str) -> None:
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


def test_states_are_never_terminal() -> None:
    game = make_game("2048", **SMALL)
    for index in range(20):
        snapshot = sample_state(game, 0, index, StateConfig(moves=(500, 500)))
        assert game.ended(game.from_json(snapshot.state)) is None


def test_actions_in_informative_states_earn_different_rewards() -> None:
    game = make_game("2048", **SMALL)
    for index in range(50):
        snapshot = sample_state(game, 0, index, StateConfig(moves=(0, 20), informative=True), SIGN)
        state = game.from_json(snapshot.state)
        rewards = [score_action(game, state, action, np.random.default_rng(0), SIGN).total for action in range(4)]
        assert sorted(rewards) == [0.0, 0.0, 1.0, 1.0]  # tiles merge along only one axis


def test_impossible_state_configs_are_rejected() -> None:
    with pytest.raises(GenerationError, match="no informative state"):
        sample_state(make_game("2048", **SMALL), 0, 0, StateConfig(informative=True), RewardConfig(game_weight=0.0))
    with pytest.raises(UsageError, match="cannot be enumerated"):
        sample_state(make_game("caption"), 0, 0, StateConfig(informative=True))
    with pytest.raises(UsageError, match=r"moves .*\(3, 1\)"):
        StateConfig(moves=(3, 1))
    with pytest.raises(UsageError, match=r"validation_fraction .*1\.0"):
        StateConfig(validation_fraction=1.0)


# Validation split -----------------------------------------------------------------------------------------------------


def write_table(folder: Path, rows: int, bad: Sequence[int] = ()) -> str:
    """Write a table of questions about images; the rows in `bad` have no answer. Return its path."""
    lines = ["image,question,answer"]
    for row in range(rows):
        Image.new("RGB", (32, 32), (row, 0, 0)).save(folder / f"{row}.png")
        lines.append(f"{row}.png,Which one?,{'' if row in bad else row}")
    (folder / "table.csv").write_text("\n".join(lines))
    return str(folder / "table.csv")


def drawn_rows(game: Any, count: int, *, validation: bool) -> set[int]:
    config = StateConfig(validation_fraction=0.2)
    drawn = [sample_state(game, 0, index, config, validation=validation).state for index in range(count)]
    return {game.from_json(text).row.index for text in drawn}


@pytest.mark.parametrize("order", ["rows", "shuffled"])
def test_validation_rows_are_never_trained_on(tmp_path: Path, order: str) -> None:
    game = make_game("vqa", data=write_table(tmp_path, 40), order=order, size=64)
    validation, training = drawn_rows(game, 100, validation=True), drawn_rows(game, 200, validation=False)
    assert (len(validation), len(training)) == (8, 32)
    assert not validation & training
    assert drawn_rows(game, 8, validation=True) == validation, "the first 8 are not distinct"
    evaluated = [Episode(game, FIRST_VALIDATION_SEED + n).state for n in range(8)]
    assert {state.row.index for state in evaluated if state.row is not None} == validation


def test_bad_rows_do_not_leak_across_the_split(tmp_path: Path) -> None:
    plain = make_game("vqa", data=write_table(tmp_path, 40), order="rows")
    first = Episode(plain, FIRST_VALIDATION_SEED).state.row.index
    # The last two validation rows, the last training row, and one more of each kind.
    bad = [(first + n) % 40 for n in (7, 6, 39, 2, 20)]
    game = make_game("vqa", data=write_table(tmp_path, 40, bad), order="rows", size=64)
    assert drawn_rows(game, 100, validation=True) == {(first + n) % 40 for n in (0, 1, 3, 4, 5)}
    assert drawn_rows(game, 200, validation=False) == {(first + n) % 40 for n in range(8, 39) if n != 20}


def test_only_finite_datasets_are_split() -> None:
    photographs, generated = make_game("caption"), make_game("scenes-questions")
    split = split_questions(photographs, 0.25)
    assert split is not None
    assert (len(split.validation), len(split.training)) == (4, 12)
    assert split_questions(generated, 0.25) is None
    assert sample_state(generated, 0, 3) == sample_state(generated, 0, 3, validation=True)


def test_too_few_validation_questions_are_rejected(tmp_path: Path) -> None:
    game = make_game("vqa", data=write_table(tmp_path, 40))
    check_validation_size([game], 0.2, 8, "--evaluation.states")
    with pytest.raises(UsageError, match=r"8 of 40 questions.* --evaluation\.states needs 9"):
        check_validation_size([game], 0.2, 9, "--evaluation.states")
    with pytest.raises(UsageError, match=r"vqa has 40 questions, .* fraction of 0\.01"):
        split_questions(game, 0.01)


# Experts --------------------------------------------------------------------------------------------------------------


def test_expert_accuracy_is_respected() -> None:
    game, config = make_game("2048", **SMALL), StateConfig(moves=(0, 20), informative=True)
    states = [game.from_json(sample_state(game, 0, index, config, SIGN).state) for index in range(200)]
    for accuracy, expected in [(1.0, 1.0), (0.4, 0.7), (0.0, 0.5)]:  # half of the random moves are also right
        rng = np.random.default_rng(0)
        responses = [expert_response(game, state, "greedy", accuracy, SIGN, rng) for state in states]
        scored = [
            score_response(game, state, response, np.random.default_rng(0), SIGN)
            for state, response in zip(states, responses)
        ]
        assert np.mean([one.total for one in scored]) == pytest.approx(expected, abs=0.1)
        assert all(one.format == 1 and one.perception is not None and one.perception.exact == 1 for one in scored)


# Rollouts -------------------------------------------------------------------------------------------------------------


def picks_of(game: Game[Any, Any], count: int) -> dict[int, Pick]:
    curriculum = Curriculum.of([game])
    return curriculum.picks(curriculum.begin(), 0, range(count))


def test_episodes_of_a_group_share_state_and_randomness() -> None:
    game = make_game("2048", **SMALL)
    states, play = StateConfig(moves=(0, 9)), MultiTurnConfig(max_turns=3)
    episodes = list(start_rollouts(picks_of(game, 2), 0, 3, play, states, SIGN))
    ids = [(episode.prompt_id, episode.sample_idx) for episode in episodes]
    assert ids == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert episodes[0].observation.prompt == game.prompt(game.start(np.random.default_rng(0)))
    assert episodes[0].observation.images[0].shape == (96, 96, 3)
    for episode in episodes:
        while not episode.done:
            episode.respond(Reply("<answer>up</answer>"))
    first, second = (episode.record(PolicyRecord(name="training"), 3) for episode in episodes[:2])
    assert first.turns == second.turns
    assert [(record.seed, record.index) for record in (first, second)] == [(0, 0), (1, 1)]
    assert EpisodeRecord.model_validate_json(first.model_dump_json()) == first
    assert 1 <= len(first.turns) <= 3


# Advantages -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), st.floats(0, 1), st.floats(0, 1), numbers)
def test_gae_matches_its_definition(
    steps: list[tuple[float, float]], gamma: float, lam: float, bootstrap: float
) -> None:
    rewards, values = [list(column) for column in zip(*steps)]
    advantages, returns = gae(rewards, values, gamma, lam, bootstrap)
    expected = plain_gae(rewards, values, bootstrap, [gamma] * len(steps), [lam] * len(steps))
    np.testing.assert_allclose(advantages, expected, atol=1e-6)
    np.testing.assert_allclose(returns, np.add(expected, values), atol=1e-6)


@given(st.lists(st.lists(numbers, min_size=1, max_size=6), min_size=1, max_size=5), st.booleans())
def test_groups_are_their_own_baseline(groups: list[list[float]], scale: bool) -> None:
    rewards = [reward for group in groups for reward in group]
    keys = [number for number, group in enumerate(groups) for _ in group]
    advantages = normalise_groups(rewards, keys, scale)
    for number, group in enumerate(groups):
        expected = np.array(group) - np.mean(group) if len(group) > 1 else np.zeros(1)
        if scale and len(group) > 1:
            expected = expected / (np.std(group, ddof=1) + 1e-4)
        np.testing.assert_allclose(advantages[[key == number for key in keys]], expected, atol=1e-6)


@pytest.mark.parametrize("scale", [True, False])
def test_grpo_compares_each_turn_with_the_rest_of_the_group(scale: bool) -> None:
    rewards, groups = [[1.0, 0.0, 2.0], [0.5], [0.0, 3.0], [1.0], [1.0, 4.0]], [0, 0, 0, 1, 1]
    gamma = 0.9
    for earned, group, advantages in zip(rewards, groups, grpo_advantages(rewards, groups, gamma, scale), strict=True):
        for turn in range(len(earned)):
            returns = [
                sum(reward * gamma ** (t - turn) for t, reward in enumerate(other) if t >= turn)
                for other, key in zip(rewards, groups)
                if key == group
            ]
            own = sum(reward * gamma ** (t - turn) for t, reward in enumerate(earned) if t >= turn)
            expected = own - np.mean(returns)
            assert advantages[turn] == pytest.approx(expected / (np.std(returns, ddof=1) + 1e-4) if scale else expected)


def make_turns(reward: float, *, right: bool, exact: float = 1.0, statements: Any = None) -> Any:
    parts = RewardRecord(total=reward, game=float(right), format=0.0, perception=exact, perception_exact=exact)
    common: Any = {"turn": 1, "state": None, "prompt": "", "response": "", "action": 0, "feedback": "", "info": {}}
    outcome = Outcome.PLAYED if right else Outcome.ILLEGAL
    return [TurnRecord(**common, outcome=outcome, reward=parts, statements=statements)]


def test_group_metrics_count_right_responses_by_state() -> None:
    groups = [0, 0, 1, 1, 2, 2]
    rights = [True, True, True, False, False, False]
    episodes = [make_turns(float(right), right=right, exact=float(n > 0)) for n, right in enumerate(rights)]
    assert group_metrics(groups, episodes) == {
        "success": pytest.approx(1 / 2),
        "misread": pytest.approx(1 / 3),
        "pass_at_n": pytest.approx(2 / 3),
        "harmonic_success": pytest.approx(3 / (1 + 2 + 5)),  # half a response of 2.5 in the state without a right one
        "informative_fraction": pytest.approx(1 / 3),
    }
    assert set(group_metrics(range(6), episodes)) == {"success", "misread"}


def test_right_responses_with_false_statements_are_counted() -> None:
    none, true, false = (
        StatementsRecord(checked=checked, true=true, first_false=first)
        for checked, true, first in ((0, 0, None), (3, 3, None), (3, 2, 1))
    )
    episodes = [
        make_turns(1.0, right=right, statements=statements)
        for right, statements in ((True, none), (True, true), (True, false), (False, false), (True, None))
    ]
    assert [turn.reasoning_accuracy for (turn,) in episodes] == [None, 1, 2 / 3, 2 / 3, None]
    assert group_metrics(range(5), episodes)["misreasoned"] == 1 / 2
    assert group_metrics(range(1), episodes[3:4])["misreasoned"] == 0
    assert "misreasoned" not in group_metrics(range(2), [episodes[0], episodes[4]])


@pytest.mark.parametrize(
    ("start", "gain", "informative", "advice"),
    [
        (0.5, 0.3, 0.5, None),
        (0.5, 0.0, 0.5, "too small for the learning rate"),
        (0.5, 0.0, 0.01, "equal rewards"),
        (1.1, 0.0, 0.01, "choose harder states"),
    ],
)
def test_a_run_without_gain_is_reported(start: float, gain: float, informative: float, advice: str | None) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {
            "success": start + gain * step / 40 + 0.05 * rng.normal(),
            "pass_at_n": 0.75,
            "harmonic_success": 0.25,
            "informative_fraction": informative,
            **({"gradient_cosine": 0.1 * rng.normal()} if step % 5 == 0 else {}),
        }
        for step in range(40)
    ]
    lines = describe_signal(rows, group_size=8)
    assert re.match(
        r"last 20 steps: right responses [\d.]+%, pass@8 75.0%, harmonic mean 25.0%, .*; gradient cosine", lines[0]
    )
    assert len(lines) == 1 if advice is None else advice in lines[1]
    assert describe_signal([], group_size=8) == []
    assert len(describe_signal(rows[:8], group_size=8)) == 1, "too few steps to say"


REWARDS, LENGTHS = [1.0, -0.5, 2.0], [3, 1, 4]
"""Reward of each turn of an episode, and number of tokens of each response."""
VALUES = [np.random.default_rng(n).normal(size=length) for n, length in enumerate(LENGTHS)]


def plain_gae(
    rewards: Sequence[float], values: Sequence[float], bootstrap: float, gammas: Sequence[float], lams: Sequence[float]
) -> Any:
    """Compute advantages from their definition, with a discount factor and lambda for each step."""
    deltas = [r + g * after - v for r, g, after, v in zip(rewards, gammas, [*values[1:], bootstrap], values)]
    return [
        sum(np.prod([gammas[j] * lams[j] for j in range(t, k)]) * deltas[k] for k in range(t, len(deltas)))
        for t in range(len(deltas))
    ]


def make_episode(bootstrap: float) -> Any:
    samples: Any = [SimpleNamespace(response=[0] * len(values), old_values=values) for values in VALUES]
    return Trajectory(0, REWARDS, samples, bootstrap)


@pytest.mark.parametrize("bootstrap", [0.0, -1.1])
def test_gae_over_tokens_matches_its_definition(bootstrap: float) -> None:
    advantages, returns = Ppo(gae_over="tokens", gamma=0.9).estimate(make_episode(bootstrap), 0.8)
    flat = list(np.concatenate(VALUES))
    rewards = [x for reward, n in zip(REWARDS, LENGTHS) for x in [*[0.0] * (n - 1), reward]]
    gammas = [x for n in LENGTHS for x in [*[1.0] * (n - 1), 0.9]]  # the last token of a response ends the turn
    expected = plain_gae(rewards, flat, bootstrap, gammas, [0.8] * sum(LENGTHS))
    assert [*map(len, advantages)] == [*map(len, returns)] == LENGTHS
    np.testing.assert_allclose(np.concatenate(advantages), expected)
    np.testing.assert_allclose(np.concatenate(returns), np.add(expected, flat))


def test_settings_without_an_option_are_documented() -> None:
    (marker,) = get_args(Fixed[int])[1:]
    page = (Path(__file__).parents[1] / "docs" / "training_local.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `?(\w*)`? ?\| (.*) \|$", page, re.MULTILINE))

    def fixed(config: type[Any]) -> list[str]:
        hints = get_type_hints(config, include_extras=True)
        return [field.name for field in fields(config) if marker in get_args(hints[field.name])]

    assert rows.pop("reward") == "as the options `--reward.*` of `vlmgym eval`"
    assert re.findall(r"`(\w+)`", rows.pop("tiny")) == [field.name for field in fields(TinySize)]
    without_section = {*fixed(TrainConfig), *fixed(ModelConfig)} - {"tiny", "reward"}
    assert set(re.findall(r"`(\w+)`", rows.pop("none"))) == without_section
    for config in (RolloutConfig, Sft, Grpo, Ppo, UpdateConfig, EvaluationConfig):
        section = config.__name__.removesuffix("Config").lower()
        assert re.findall(r"`(\w+)`", rows.pop(section)) == fixed(config), section
