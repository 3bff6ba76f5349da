"""Rules that demonstrations follow, such as the first step of a search."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from vlmgym import RewardConfig, make_game
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.core.search import shortest_path

SWAP = {"rows": 5, "columns": 5, "colours": 4, "shapes": 1}
SHISENSHO = {"rows": 6, "columns": 6, "copies": 2, "colours": 6, "shapes": 3}


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


def first_move(game: Any, state: Any) -> int | None:
    """Make the first push that the text about Sokoban states, or walk towards it; do not read the move itself."""
    action = game.best_action(state)
    if action is None:
        return None
    text = game.explain(state, action).partition(" I move ")[0]
    push = re.search(r"Pushes that solve the room: box \((\d), (\d)\) (\w+)", text)
    assert push is not None
    steps = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
    row, column = int(push[1]), int(push[2])
    behind = (row - steps[push[3]][0], column - steps[push[3]][1])
    rows = [line.split(", ") for line in game.describe(state).splitlines()]
    free = {(r, c) for r, line in enumerate(rows) for c, cell in enumerate(line) if cell in ("floor", "target")}
    (player,) = [(r, c) for r, line in enumerate(rows) for c, cell in enumerate(line) if "player" in cell]

    def walks(cell: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
        cells = [(name, (cell[0] + down, cell[1] + right)) for name, (down, right) in steps.items()]
        return [(name, to) for name, to in cells if to in free]

    walk = shortest_path(player, walks, lambda cell: cell == behind)
    return [*steps].index(walk[0][1] if walk else push[3])


def follow_rule(game: Any, state: Any) -> Any:
    return game.rule_action(state)


def follow_oracle(game: Any, state: Any) -> Any:
    return game.best_action(state)


def whole_games(game: Any, policy: Callable[[Any, Any], Any], games: int, turns: int, slip: int = 0) -> float:
    """Play whole games and return the sum of the rewards of legal moves; every `slip`-th answer is random."""
    total = 0.0
    for number in range(games):
        episode, rng = Episode(game, FIRST_VALIDATION_SEED + number, RewardConfig()), np.random.default_rng(number)
        for turn in range(turns):
            if episode.ended:
                break
            action = None if slip and turn % slip == 0 else policy(game, episode.state)
            action = game.answer.sample(rng) if action is None else action  # after a wrong push, there is no oracle
            scored = episode.respond(f"<answer>{game.answer.format(action)}</answer>")
            total += scored.game if scored.outcome is Outcome.PLAYED else 0.0
    return total


@pytest.mark.parametrize(
    ("name", "config", "policy", "games", "turns"),
    [
        ("2048", {}, follow_rule, 20, 50),
        ("shisensho", SHISENSHO, follow_rule, 6, 40),
        ("swap", SWAP, follow_rule, 6, 40),
        ("sokoban", {}, first_move, 30, 60),
    ],
)
def test_the_demonstrated_reasoning_wins_whole_games(
    name: str, config: dict[str, Any], policy: Callable[[Any, Any], Any], games: int, turns: int
) -> None:
    """A player that follows the text, not a solver, is almost as good as the oracle, and withstands slips."""
    game: Any = make_game(name, **config)
    oracle = whole_games(game, follow_oracle, games, turns)
    assert whole_games(game, policy, games, turns) >= 0.95 * oracle
    assert whole_games(game, policy, games, turns, slip=5) >= 0.8 * oracle


@pytest.mark.parametrize(("name", "config"), [("swap", SWAP), ("shisensho", SHISENSHO)])
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
