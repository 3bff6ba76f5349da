"""The swap with the best expected number of cleared tiles.

What vanishes first, and what falling tiles of the board line up by themselves, is exact; it chooses the candidates.
What new tiles add is estimated: each candidate's cascade is played several times with tiles from a generator that is
seeded by the board alone, so that the same board always gives the same swap. Later moves are not looked at.

Measured on one core of a small server: about 2 ms a move on 8 x 8 with 12 kinds, 6 ms on 5 x 5 with 4 kinds, and 0.2 s
at worst, on 16 x 16 with 3 kinds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from vlmgym.sandbox.games.swap.board import SwapRules, Tiles

CANDIDATES = 12
"""Swaps that are played out with new tiles: those that clear most without them."""
SAMPLES = 24
"""Cascades played for each of them."""
ROUNDS = 6
"""Rounds of a cascade that are looked at."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    Attributes:
        swap: Index into `SwapRules.actions` of the swap with the best expected clearing, or None if none is legal.
        nodes: Cascades that were played.
    """

    swap: int | None
    nodes: int


def search(rules: SwapRules, tiles: Tiles, kinds: int) -> Search:
    """Search for the best swap.

    Args:
        rules: The rules on boards of this size.
        tiles: A board without runs, each tile 0 to 255.
        kinds: New tiles are 0 to kinds - 1, each as likely.
    """
    # Both orders of a swap are the same move: keep the first.
    swaps = [index for index in rules.legal_swaps(tiles) if rules.actions[index][:2] < rules.actions[index][2:]]
    if len(swaps) < 2:
        return Search(swaps[0] if swaps else None, 0)
    alone = {index: _cleared_without_new_tiles(rules, tiles, index) for index in swaps}
    candidates = sorted(swaps, key=lambda index: -alone[index])[:CANDIDATES]
    rng = np.random.default_rng(zlib.crc32(bytes(tiles)))
    expected = {index: _cleared_in_samples(rules, tiles, index, kinds, rng) for index in candidates}
    return Search(max(candidates, key=expected.__getitem__), len(swaps) + len(candidates) * SAMPLES)


def _cleared_without_new_tiles(rules: SwapRules, tiles: Tiles, index: int) -> int:
    """Tiles that are cleared if all new tiles are blanks, which equal nothing."""
    blanks = count(-1, -1)
    return _cleared(rules, tiles, index, lambda number: [next(blanks) for _ in range(number)])


def _cleared_in_samples(rules: SwapRules, tiles: Tiles, index: int, kinds: int, rng: np.random.Generator) -> int:
    """Sum over the samples of the tiles cleared: `SAMPLES` times their expected number, estimated."""

    def new(number: int) -> Tiles:
        tiles: Tiles = rng.integers(kinds, size=number).tolist()
        return tiles

    return sum(_cleared(rules, tiles, index, new) for _ in range(SAMPLES))


def _cleared(rules: SwapRules, tiles: Tiles, index: int, new: Callable[[int], Tiles]) -> int:
    return rules.cascade(rules.swap(tiles, index), rules.cells(index), new, ROUNDS).cleared
