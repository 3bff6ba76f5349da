"""Episodes: seeds, and the generator state in snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import StateError
from vlmgym.sandbox.core.episode import Episode, Snapshot

BIG_SEED = 2**63 - 1


@given(st.integers(0, BIG_SEED), st.lists(st.integers(0, 3), max_size=8))
def test_json_keeps_all_128_bits_of_the_generator(seed: int, actions: list[int]) -> None:
    episode = Episode(make_game("2048", size=64), seed)
    for action in actions:
        episode.act(action)
    snapshot = episode.snapshot()
    again = Snapshot.model_validate_json(snapshot.model_dump_json())
    assert again == snapshot
    assert again.rng == episode.rng.bit_generator.state
    assert {type(part) for part in again.rng["state"].values()} == {int}


def test_a_drawn_seed_reproduces_the_episode() -> None:
    game = make_game("2048")
    first, second = Episode(game), Episode(game)
    assert first.seed != second.seed
    assert 0 <= first.seed < 2**63
    assert Episode(game, first.seed).snapshot() == first.snapshot()


@pytest.mark.parametrize(
    "rng",
    [
        {},
        {"bit_generator": "PCG64"},
        {"bit_generator": "PCG64", "state": {"state": "1", "inc": 1}, "has_uint32": 0, "uinteger": 0},
        {"bit_generator": "PCG64", "state": {"state": 2**128, "inc": 1}, "has_uint32": 0, "uinteger": 0},
    ],
)
def test_a_snapshot_with_a_broken_generator_is_rejected(rng: dict[str, Any]) -> None:
    game = make_game("2048")
    snapshot = Episode(game, seed=0).snapshot().model_copy(update={"rng": rng})
    with pytest.raises(StateError, match="generator"):
        Episode.restore(game, snapshot)
