"""Paths in Shisen-Sho, compared with a reference search."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym.sandbox.games.shisensho.boards import Board, Cell, PathFinder, end_reason, legal_actions
from vlmgym.sandbox.games.tiles import EMPTY

OPPOSITE = {(0, 1): (0, -1), (0, -1): (0, 1), (1, 0): (-1, 0), (-1, 0): (1, 0)}


@st.composite
def boards(draw: st.DrawFn, largest: int = 6) -> Board:
    """Draw boards of any size, even of one row or column, with few kinds of tile and many empty cells."""
    rows, columns = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    tile = st.sampled_from([EMPTY, EMPTY, "red circle", "blue square"])
    return tuple(tuple(draw(tile) for _ in range(columns)) for _ in range(rows))


def fewest_turns(board: Board, start: Cell, end: Cell) -> int | None:
    """Return the fewest turns of any path between two tiles, by breadth-first search; None if there is no path."""
    rows, columns = len(board), len(board[0])
    best: dict[tuple[Cell, Cell], int] = {}
    queue = deque((start, direction, 0) for direction in OPPOSITE)
    found = []
    while queue:
        (row, column), (down, right), turns = queue.popleft()
        there = (row + down, column + right)
        if there == end:
            found.append(turns)
            continue
        in_ring = -1 <= there[0] <= rows and -1 <= there[1] <= columns
        on_board = 0 <= there[0] < rows and 0 <= there[1] < columns
        if not in_ring or (on_board and board[there[0]][there[1]] != EMPTY):
            continue
        for direction in OPPOSITE:
            if direction == OPPOSITE[down, right]:
                continue
            cost = turns + (direction != (down, right))
            if cost < best.get((there, direction), 5):
                best[there, direction] = cost
                queue.append((there, direction, cost))
    return min(found, default=None)


def cells_with_tiles(board: Board) -> list[Cell]:
    return [(r, c) for r, row in enumerate(board) for c, tile in enumerate(row) if tile != EMPTY]


def path_is_free(board: Board, path: list[Cell]) -> bool:
    """Return True if all cells between the ends of a path are empty or in the ring around the board."""
    passed: list[Cell] = []
    for (r0, c0), (r1, c1) in pairwise(path):
        assert (r0 == r1) != (c0 == c1), "segments are straight and not empty"
        steps = abs(r1 - r0) + abs(c1 - c0)
        passed += [(r0 + (r1 - r0) * i // steps, c0 + (c1 - c0) * i // steps) for i in range(1, steps + 1)]
    rows, columns = len(board), len(board[0])
    return all(
        -1 <= r <= rows and -1 <= c <= columns and (not (0 <= r < rows and 0 <= c < columns) or board[r][c] == EMPTY)
        for r, c in passed[:-1]
    )


@settings(max_examples=100)
@given(boards(), st.integers(0, 4))
def test_paths_match_the_reference_search(board: Board, turns: int) -> None:
    finder = PathFinder(len(board), len(board[0]), turns)
    cells = cells_with_tiles(board)
    squares = [finder.square(cell) for cell in cells]
    tiles = sum(1 << square for square in squares)
    expected = set()
    for i, first in enumerate(cells):
        for second in cells[i + 1 :]:
            fewest = fewest_turns(board, first, second)
            path = finder.path(finder.square(first), finder.square(second), tiles)
            if fewest is None or fewest > turns:
                assert path is None
                continue
            expected.add((first, second))
            assert path is not None
            assert (path[0], path[-1]) == (first, second)
            assert len(path) - 2 == fewest
            assert path_is_free(board, path)
    assert {(finder.cell(a), finder.cell(b)) for a, b in finder.pairs(tiles, [squares])} == expected
    for square, cell in zip(squares, cells):
        partners = {finder.cell(other) for other in squares if finder.partners(square, tiles) >> other & 1}
        assert partners == {b if a == cell else a for a, b in expected if cell in (a, b)}
        assert finder.partners(square, tiles) & ~tiles == 0


@settings(max_examples=100)
@given(boards(largest=4), st.integers(0, 3))
def test_legal_actions_are_connected_equal_tiles_in_both_orders(board: Board, turns: int) -> None:
    cells = cells_with_tiles(board)
    expected = [
        first + second
        for first in cells
        for second in cells
        if first != second
        and board[first[0]][first[1]] == board[second[0]][second[1]]
        and (fewest := fewest_turns(board, first, second)) is not None
        and fewest <= turns
    ]
    assert legal_actions(board, turns) == tuple(sorted(expected))
    end = None if expected else "no pair can be connected" if cells else "cleared"
    assert end_reason(board, turns) == end
