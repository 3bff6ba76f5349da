"""Episodes: snapshots, branches, seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import game_ids, make_game
from vlmgym.errors import EpisodeEnded, StateError
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.reward import Outcome, RewardConfig

BIG_SEED = 2**63 - 1


def play(episode: Episode[Any, Any], turns: int, chance: np.random.Generator) -> list[object]:
    """Play legal, random and malformed turns; return the results."""
    seen: list[object] = []
    for _ in range(turns):
        if episode.ended is not None:
            break
        kind = chance.random()
        if kind < 0.1:
            scored = episode.respond("no answer")
        elif kind < 0.3:
            scored = episode.act(episode.game.random_action(chance))
        else:
            game, legal = episode.game, episode.game.legal_actions(episode.state)
            action = game.random_action(chance) if legal is None else legal[int(chance.integers(len(legal)))]
            scored = episode.respond(game.respond(episode.state, action))
        seen.append((scored, episode.snapshot()))
    return seen


def through_json(snapshot: Snapshot) -> Snapshot:
    return Snapshot.model_validate_json(snapshot.model_dump_json())


@pytest.mark.parametrize("turns_before", [0, 1, 7, 25])
def test_a_restored_episode_continues_identically(turns_before: int) -> None:
    for game_id in game_ids():
        game = make_game(game_id)
        episode = Episode(game, seed=11)
        play(episode, turns_before, np.random.default_rng(1))
        snapshot = episode.snapshot()
        restored = Episode.restore(make_game(game_id), through_json(snapshot))
        assert restored.snapshot() == snapshot
        assert play(restored, 20, np.random.default_rng(2)) == play(episode, 20, np.random.default_rng(2))


@given(st.integers(0, BIG_SEED), st.integers(0, 8))
def test_json_keeps_all_128_bits_of_the_generator(seed: int, turns: int) -> None:
    episode = Episode(make_game("2048", size=64), seed)
    play(episode, turns, np.random.default_rng(seed))
    snapshot = episode.snapshot()
    again = through_json(snapshot)
    assert again == snapshot
    assert again.rng == episode.rng.bit_generator.state
    assert {type(part) for part in again.rng["state"].values()} == {int}
    assert again.rng["state"]["state"] > 2**64 or snapshot.rng["state"]["state"] <= 2**64


def test_a_branch_may_have_its_own_generator() -> None:
    game = make_game("2048")
    snapshot = Episode(game, seed=5).snapshot()
    action = (game.legal_actions(game.from_json(snapshot.state)) or ())[0]

    def after(**branch: Any) -> Any:
        episode = Episode.restore(game, snapshot, **branch)
        episode.act(action)
        return episode.state

    assert after() == after()
    own = [after(rng=np.random.default_rng(seed)) for seed in range(20)]
    assert own == [after(rng=np.random.default_rng(seed)) for seed in range(20)]
    assert len(set(own)) > 10


def test_turns_scores_outcomes_and_feedback_are_kept() -> None:
    game = make_game("2048")
    episode = Episode(game, seed=0, reward=RewardConfig(illegal=-9.0))
    legal = game.legal_actions(episode.state) or ()
    scores = [episode.act(legal[0]).game, episode.act(7).game, episode.respond("?").game]
    assert episode.turn == 3
    assert episode.outcomes == {Outcome.PLAYED: 1, Outcome.ILLEGAL: 1, Outcome.UNPARSABLE: 1}
    assert episode.score == sum(scores)
    assert episode.feedback == "the response has no <answer>"
    restored = Episode.restore(game, through_json(episode.snapshot()))
    assert (restored.turn, restored.score, restored.outcomes, restored.feedback) == (
        episode.turn,
        episode.score,
        episode.outcomes,
        episode.feedback,
    )
    episode.act((game.legal_actions(episode.state) or ())[0])
    assert episode.feedback == ""


def test_an_ended_episode_stays_ended() -> None:
    game = make_game("2048", reasoning=5)
    episode = Episode(game, seed=0)
    chance = np.random.default_rng(0)
    while episode.ended is None:
        legal = game.legal_actions(episode.state) or ()
        last = episode.act(legal[int(chance.integers(len(legal)))])
    assert last.terminated
    before = episode.snapshot()
    for move in (lambda: episode.act(0), lambda: episode.respond("<answer>up</answer>"), lambda: episode.respond("")):
        with pytest.raises(EpisodeEnded, match="no move is left"):
            move()
    assert episode.snapshot() == before
    restored = Episode.restore(game, before)
    assert restored.ended == "no move is left"
    with pytest.raises(EpisodeEnded):
        restored.act(0)


def test_a_drawn_seed_reproduces_the_episode() -> None:
    game = make_game("2048")
    first, second = Episode(game), Episode(game)
    assert first.seed != second.seed
    assert 0 <= first.seed < 2**63
    assert Episode(game, first.seed).snapshot() == first.snapshot()


def test_a_snapshot_of_another_game_or_configuration_is_rejected() -> None:
    snapshot = Episode(make_game("2048"), seed=0).snapshot()
    for other in (make_game("2048", rows=5), make_game("swap")):
        with pytest.raises(StateError):
            Episode.restore(other, snapshot)


@pytest.mark.parametrize(
    "rng",
    [
        {},
        {"bit_generator": "MT19937"},
        {"bit_generator": "PCG64"},
        {"bit_generator": "PCG64", "state": {"state": "1", "inc": 1}, "has_uint32": 0, "uinteger": 0},
        {"bit_generator": "PCG64", "state": {"state": 2**128, "inc": 1}, "has_uint32": 0, "uinteger": 0},
        {"bit_generator": "PCG64", "state": {"state": -1, "inc": 1}, "has_uint32": 0, "uinteger": 0},
    ],
)
def test_a_snapshot_with_a_broken_generator_is_rejected(rng: dict[str, Any]) -> None:
    game = make_game("2048")
    snapshot = Episode(game, seed=0).snapshot().model_copy(update={"rng": rng})
    with pytest.raises(StateError, match="generator"):
        Episode.restore(game, snapshot)
