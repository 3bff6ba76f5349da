"""Rules that demonstrations follow, such as the first step of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from vlmgym import RewardConfig, make_game
from vlmgym.sandbox.core.episode import Episode


def best_directions(description: str) -> list[str]:
    """Count the pairs that merge in rows and columns; return the directions with most, if tiles can slide there."""
    rows = [[int(cell) for cell in line.split(",")] for line in description.splitlines()]
    merges: dict[str, int] = {}
    for lines, start, end in ((rows, "left", "right"), ([list(column) for column in zip(*rows)], "up", "down")):
        count = sum(merging_pairs(line) for line in lines)
        if count or any(line != slid(line) for line in lines):
            merges[start] = count
        if count or any(line[::-1] != slid(line[::-1]) for line in lines):
            merges[end] = count
    return [direction for direction, count in merges.items() if count == max(merges.values())]


def merging_pairs(line: Sequence[int]) -> int:
    count, previous = 0, 0
    for tile in filter(None, line):
        count, previous = (count + 1, 0) if tile == previous else (count, tile)
    return count


def slid(line: Sequence[int]) -> list[int]:
    tiles = [tile for tile in line if tile]
    return tiles + [0] * (len(line) - len(tiles))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("swap", {"rows": 5, "columns": 5, "colours": 4, "shapes": 1}),
        ("shisensho", {"rows": 6, "columns": 6, "copies": 2, "colours": 6, "shapes": 3}),
    ],
)
def test_demonstrations_start_anywhere(name: str, config: dict[str, Any]) -> None:
    """The last line or pair of the search is also demonstrated about as often as the first."""
    game: Any = make_game(name, **config)
    starts = []
    for seed in range(200):
        state = game.start(np.random.default_rng(seed))
        action = game.rule_action(state)
        assert action in game.legal_actions(state)
        starts.append(game.explain(state, action).partition(": ")[2].partition(",")[0])
    assert max(map(starts.count, starts)) < 0.2 * len(starts)


def test_the_rule_of_2048_is_the_demonstrated_one() -> None:
    game: Any = make_game("2048")
    for seed in range(20):
        episode = Episode(game, seed, RewardConfig())
        for _ in range(30):
            action = game.rule_action(episode.state)
            assert game.answer.format(action) in best_directions(game.describe(episode.state))
            episode.act(action)
