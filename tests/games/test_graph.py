"""Graphs: answers agree with a search over all paths and pairs; edges can be told apart."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.games.graph import CLEAR, LETTERS, GraphState, shortest

RNG = np.random.default_rng(0)


def paths(state: GraphState, start: int, end: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return the lengths of all simple paths, shortest first, with their nodes."""
    lengths = {pair: n for (a, b), n in zip(state.edges, state.lengths) for pair in ((a, b), (b, a))}
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, (start,))]
    ended = []
    while waiting:
        length, path = waiting.pop()
        if path[-1] == end:
            ended.append((length, path))
            continue
        waiting += [(length + lengths[a, b], (*path, b)) for a, b in lengths if a == path[-1] and b not in path]
    return sorted(ended)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_an_independent_search_finds_the_answer(level: int) -> None:
    game, kinds = make_game("graph", perception=level, reasoning=level), Counter[str]()
    for seed in range(25):
        state = game.start(np.random.default_rng(seed))
        kinds[state.kind] += 1
        if state.kind == "colours":
            (pair,) = (edge for edge in state.edges if state.colours[edge[0]] == state.colours[edge[1]])
            assert state.answer == LETTERS[pair[0]] + LETTERS[pair[1]]
            assert game.step(state, f"{state.answer[1]} and {state.answer[0]}".lower(), RNG).reward == 1.0
            assert game.step(state, state.answer[0], RNG).reward == 0.0
            continue
        (length, path), *others = paths(state, state.path[0], state.path[-1])
        assert path == state.path
        assert len(path) == game.config.hops + 1
        assert all(other > length for other, _ in others)
        assert state.answer == (str(length) if state.kind == "length" else LETTERS[path[1]])
    assert len(kinds) == 3


def test_edges_keep_away_from_other_nodes() -> None:
    game = make_game("graph", perception=5, reasoning=5)
    for seed in range(10):
        state = game.start(np.random.default_rng(seed))
        for (a, b), node in product(state.edges, range(len(state.places))):
            start, end, place = (np.array(state.places[i], float) for i in (a, b, node))
            points = start + np.linspace(0, 1, 200)[:, None] * (end - start)
            assert node in (a, b) or np.linalg.norm(points - place, axis=1).min() >= CLEAR - 1


def test_a_path_is_the_shortest_only_if_no_other_is_as_short() -> None:
    assert shortest({(0, 1): 1, (1, 2): 1, (0, 2): 3}, 0, 2) == (0, 1, 2)
    assert shortest({(0, 1): 1, (1, 2): 1, (0, 2): 2}, 0, 2) is None
    assert shortest({(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 1, (3, 4): 1}, 0, 4) is None
    assert shortest({(0, 1): 1, (2, 3): 1}, 0, 3) is None
