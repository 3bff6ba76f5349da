"""One-move lookahead for Swap: the swap with the highest expected number of cleared tiles.

Swaps are first ranked by the number of tiles that they clear if new tiles match no other tile, which needs no sampling.
For the best of them, cascades with random new tiles are then sampled. The generator is seeded with the board, so a
given board always gets the same swap.

On one core of a small server, a move takes about 2 ms on 8 x 8 with 12 kinds, 6 ms on 5 x 5 with 4 kinds, and 0.2 s in
the slowest case, 16 x 16 with 3 kinds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.games.swap.rules import SwapRules, Tiles

CANDIDATES = 12
"""Number of swaps whose cascades are sampled."""
SAMPLES = 24
"""Number of cascades to sample per candidate."""
ROUNDS = 6
"""Maximum number of rounds per cascade."""


class SearchResult(NamedTuple):
    """Result of a search.

    Attributes:
        swap: Index of the best swap in `SwapRules.actions`; None if no swap is legal.
        nodes: Number of simulated cascades.
    """

    swap: int | None
    nodes: int


def search(rules: SwapRules, tiles: Tiles, kinds: int) -> SearchResult:
    """Find the best swap on a board without runs; tiles are 0 to kinds - 1, and at most 255."""
    # Keep one of the two orders of each swap.
    swaps = [index for index in rules.legal_swaps(tiles) if rules.actions[index][:2] < rules.actions[index][2:]]
    if len(swaps) < 2:
        return SearchResult(swaps[0] if swaps else None, 0)
    blanks = count(-1, -1)  # tiles that match no other
    alone = {index: _cleared(rules, tiles, index, lambda n: [next(blanks) for _ in range(n)]) for index in swaps}
    candidates = sorted(swaps, key=lambda index: -alone[index])[:CANDIDATES]
    rng = np.random.default_rng(zlib.crc32(bytes(tiles)))
    expected = {index: _cleared_in_samples(rules, tiles, index, kinds, rng) for index in candidates}
    return SearchResult(max(candidates, key=expected.__getitem__), len(swaps) + len(candidates) * SAMPLES)


def _cleared_in_samples(rules: SwapRules, tiles: Tiles, index: int, kinds: int, rng: np.random.Generator) -> int:
    def new(number: int) -> Tiles:
        tiles: Tiles = rng.integers(kinds, size=number).tolist()
        return tiles

    return sum(_cleared(rules, tiles, index, new) for _ in range(SAMPLES))


def _cleared(rules: SwapRules, tiles: Tiles, index: int, new: Callable[[int], Tiles]) -> int:
    return rules.cascade(rules.swap(tiles, index), rules.cells(index), new, ROUNDS).cleared
