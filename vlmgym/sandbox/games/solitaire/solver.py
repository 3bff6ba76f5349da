"""Search for the order that plays the most cards, with a limit on the number of positions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

RANK_COUNT = 13


class LongestPlan(NamedTuple):
    """Result of a search.

    Attributes:
        columns: Columns to play from, in order.
        nodes: Number of positions searched.
        exact: True if the search has shown that the plan is as long as possible.
    """

    columns: tuple[int, ...]
    nodes: int
    exact: bool


def fits(rank: int, base: int) -> bool:
    """True if a card can be played: its rank is one above or below `base`; aces and kings are adjacent."""
    return (rank - base) % RANK_COUNT in (1, RANK_COUNT - 1)


@lru_cache(maxsize=4096)
def longest_plan(columns: tuple[tuple[int, ...], ...], base: int, nodes: int) -> LongestPlan:
    """Search depth-first for a plan that plays the most cards.

    Args:
        columns: Ranks in each column; the last is played first.
        base: Rank of the base card.
        nodes: Maximum number of positions to search.
    """
    total = sum(map(len, columns))
    seen: set[tuple[tuple[int, ...], int]] = set()
    best: tuple[int, ...] = ()
    heights, path = list(map(len, columns)), list[int]()
    waiting = [_moves(columns, heights, base)]
    searched = 1
    while waiting:
        if waiting[-1] and searched < nodes:
            column = waiting[-1].pop()
            heights[column] -= 1
            key = tuple(heights), columns[column][heights[column]]
            if key in seen:
                heights[column] += 1
                continue
            seen.add(key)
            searched += 1
            path.append(column)
            if len(path) > len(best):
                best = tuple(path)
                if len(best) == total:
                    return LongestPlan(best, searched, True)
            waiting.append(_moves(columns, heights, key[1]))
            continue
        waiting.pop()
        if path:
            heights[path.pop()] += 1
    return LongestPlan(best, searched, searched < nodes)


def _moves(columns: Sequence[Sequence[int]], heights: Sequence[int], base: int) -> list[int]:
    """List the columns that can be played, sorted by their number of cards; the search tries the last one first."""
    found = [column for column, height in enumerate(heights) if height and fits(columns[column][height - 1], base)]
    return sorted(found, key=lambda column: heights[column])
