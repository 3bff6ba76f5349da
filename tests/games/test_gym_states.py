"""States of Gymnasium environments can be restored anywhere, in any order, and without needless steps."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.games.probe import Probe, play
from vlmgym import make_game
from vlmgym.errors import GameError, StateError, UsageError
from vlmgym.evaluation import evaluate
from vlmgym.rollout.states import sample_state
from vlmgym.runs.record import recorded_states
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.gym.live import Moves
from vlmgym.testing import transcript


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 1)), max_size=60), st.integers(1, 3), st.integers(1, 3))
def test_interleaved_episodes_are_independent(moves: list[tuple[int, int]], running: int, frames: int) -> None:
    # Episodes 0 and 1 have the same seed, and fewer environments run than there are episodes.
    game = make_game("gym:Probe-v0", size=64, running=running, frames=frames, sticky=0.3)
    episodes = [Episode(game, seed) for seed in (5, 5, 6, 7)]
    played: list[list[int]] = [[], [], [], []]
    for which, action in moves:
        if episodes[which].ended is None:
            episodes[which].act(action)
            played[which].append(action)
            if len(played[which]) % 4 == 0:
                episodes[which] = Episode.restore(game, episodes[which].snapshot())
    for episode, seed, actions in zip(episodes, (5, 5, 6, 7), played):
        alone = Episode(make_game("gym:Probe-v0", size=64, frames=frames, sticky=0.3), seed)
        for action in actions:
            alone.act(action)
        assert (alone.state, alone.score) == (episode.state, episode.score)
        for one, other in zip(game.images(episode.state), alone.game.images(alone.state)):
            assert np.array_equal(one, other)


def test_threads_share_a_game() -> None:
    game = make_game("gym:FrozenLake-v1", size=64, running=3)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: transcript(game, seed), range(8)))
    assert together == [transcript(make_game("gym:FrozenLake-v1", size=64), seed) for seed in range(8)]


def test_play_takes_one_step_per_action() -> None:
    game = make_game("gym:Probe-v0", size=64)
    game.check_restorable()
    Probe.steps = 0
    episode = Episode(game, 1)
    states = [episode.state]
    for _ in range(20):
        episode.act(0)
        states.append(episode.state)
        assert game.images(states[-1])
        assert game.images(states[0])
    assert Probe.steps == 20
    assert [game.from_data(game.to_data(state)) for state in states] == states
    assert Probe.steps <= 40


def test_states_of_random_environments_are_refused() -> None:
    game = make_game("gym:Probe-v0", options="flaw=random", size=64)
    episode = Episode(game, 0)
    episode.act(0)
    for refused in (lambda: Episode.restore(game, episode.snapshot()), lambda: sample_state(game, 0, 0)):
        with pytest.raises(StateError, match=r"Probe-v0 is not deterministic: .* or used for training"):
            refused()


@pytest.mark.parametrize(
    "change",
    [{"seed": -1}, {"actions": "09"}, {"actions": [0]}, {"actions": "0" * 40}, {"end": "terminated"}, {"end": "x"}],
)
def test_states_that_the_environment_does_not_reach_are_refused(change: dict[str, Any]) -> None:
    game = make_game("gym:Probe-v0", size=64)
    with pytest.raises(StateError, match=r"state of gym:Probe|ends after 25 of 40 actions"):
        game.from_json(json.dumps({"seed": 0, "actions": "0", "end": None, **change}))


def test_failed_environments_are_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    game = make_game("gym:Probe-v0", size=64, running=1)
    episode = Episode(game, 0)
    for method, fails in (("step", lambda: episode.act(0)), ("reset", lambda: Episode(game, 1))):
        with monkeypatch.context() as broken:
            broken.setattr(Probe, method, lambda *_, **__: 1 // 0)
            with pytest.raises(GameError, match="ZeroDivisionError"):
                fails()
    assert play(game, 1, [0] * 3) == play(make_game("gym:Probe-v0", size=64), 1, [0] * 3)


def test_groups_that_choose_the_same_actions_replay_nothing() -> None:
    game = make_game("gym:Probe-v0", size=64)
    game.check_restorable()
    Probe.steps = 0
    episodes = [Episode(game, 5) for _ in range(4)]
    for _ in range(20):
        for episode in episodes:
            episode.act(0)
    assert Probe.steps == 80


def test_records_of_long_episodes_do_not_repeat_the_actions() -> None:
    game = make_game("gym:Endless-v0", size=64)
    (record,) = evaluate(game, "random", 1, max_turns=300, workers=0)
    sizes = [len(turn.model_dump_json()) for turn in record.turns]
    assert max(sizes[-50:]) <= max(sizes[:50]) + 8
    states = recorded_states(game, record)
    assert [len(str(state.actions)) for state in states] == list(range(301))
    assert game.to_data(states[-1]) == record.final_state
    turns = [turn.model_copy(update={"action": 0} if turn.turn == 7 else {}) for turn in record.turns]
    with pytest.raises(UsageError, match=r"^turn 8: .*earlier turns"):
        recorded_states(game, record.model_copy(update={"turns": turns}))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("0123", max_size=3), max_size=40), st.text("0123", max_size=20))
def test_moves_compare_and_pickle_as_their_text(parts: list[str], other: str) -> None:
    moves = Moves()
    for part in parts:
        moves = Moves(part, moves)
    text = "".join(parts)
    assert (str(moves), moves.length) == (text, len(text))
    assert (moves == Moves(other)) == (text == other)
    assert pickle.loads(pickle.dumps(moves)) == moves == Moves(text)


@pytest.mark.parametrize("sticky", [0.0, 0.5])
def test_copies_of_states_are_complete(sticky: float) -> None:
    config: Any = {"size": 64, "options": f"sticky={sticky}"}
    game = make_game("gym:Screen-v0", running=1, **config)
    episodes = [Episode(game, seed) for seed in (1, 2, 1)]
    for index in range(10):
        for episode in episodes:
            episode.act(index % 3 - 1)
            Episode(game, 8).act(1)
    alone = play(make_game("gym:Screen-v0", **config), 1, [index % 3 - 1 for index in range(10)])
    for episode in (episodes[0], episodes[2]):
        assert episode.score == pytest.approx(sum(reward for reward, _, _ in alone))
        assert game.images(episode.state)[-1].tobytes() == alone[-1][1]
