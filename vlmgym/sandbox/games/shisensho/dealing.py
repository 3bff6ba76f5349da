"""Deal boards, at random or solvable by construction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from vlmgym.errors import GenerationError
from vlmgym.sandbox.games.shisensho.paths import Board, PathFinder, Square, end_reason

MAX_DEALS = 1000
"""Maximum number of attempts to deal a board that meets the constraints."""


def deal(finder: PathFinder, tiles: Sequence[str], solvable: bool, rng: np.random.Generator) -> Board:
    """Deal a full board with at least one legal move; if `solvable`, one that can be cleared.

    `tiles` lists the tile names; `tiles[2 * n]` and `tiles[2 * n + 1]` are equal for each n.
    """
    deal_once = _deal_solvable if solvable else _deal_random
    for _ in range(MAX_DEALS):
        if (board := deal_once(finder, tiles, rng)) is not None:
            return board
    wanted = "that can be cleared" if solvable else "with a connected pair"
    raise GenerationError(
        f"shisensho: no {finder.rows} x {finder.columns} board {wanted} with turns={finder.turns} was found in "
        f"{MAX_DEALS} attempts"
    )


def _deal_solvable(finder: PathFinder, tiles: Sequence[str], rng: np.random.Generator) -> Board | None:
    """Deal a board that can be cleared in the order of `removal_order`; None at a dead end."""
    pairs = removal_order(finder, rng)
    if pairs is None:
        return None
    tile_at = {}
    for number, index in enumerate(rng.permutation(len(pairs))):
        tile_at.update(dict.fromkeys(pairs[index], tiles[2 * number]))
    return tuple(tuple([tile_at[square] for square in line]) for line in finder.squares)


def _deal_random(finder: PathFinder, tiles: Sequence[str], rng: np.random.Generator) -> Board | None:
    """Shuffle the tiles; None if no pair can be connected."""
    order = rng.permutation(len(tiles)).reshape(finder.rows, finder.columns)
    board = tuple(tuple(tiles[i] for i in line) for line in order)
    return board if end_reason(board, finder.turns) is None else None


def removal_order(finder: PathFinder, rng: np.random.Generator) -> list[tuple[Square, Square]] | None:
    """Draw pairs of squares that can be removed from a full board in the order drawn; None at a dead end.

    Adjacent squares are paired only if no others are connected, because adjacent equal tiles are trivial to find.
    """
    left = list(chain.from_iterable(finder.squares))
    tiles = sum(1 << square for square in left)
    pairs = []
    while left:
        order = [left[i] for i in rng.permutation(len(left)).tolist()]
        candidates = chain(
            ((square, finder.partners(square, tiles) & ~finder.neighbours[square]) for square in order),
            ((square, finder.partners(square, tiles)) for square in order),
        )
        first, partners = next((entry for entry in candidates if entry[1]), (0, 0))
        if not partners:
            return None
        seconds = [square for square in left if partners >> square & 1]
        second = seconds[int(rng.integers(len(seconds)))]
        pairs.append((first, second))
        tiles ^= 1 << first | 1 << second
        left.remove(first)
        left.remove(second)
    return pairs
