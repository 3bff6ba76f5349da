"""Strategy for Snake: follow a shortest path to the food if it is safe, or else make a safe step.

A path or step is safe if the head can still reach the tail afterwards, because the snake can then follow its tail. If
several steps are safe, the strategy takes the one after which the shortest path to the tail is longest; if none is
safe, it takes the first step that does not end the game.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vlmgym.sandbox.core.named_actions import neighbour
from vlmgym.sandbox.games.search import shortest_path

Cell = tuple[int, int]
Body = tuple[Cell, ...]


def best_step(body: Body, food: Cell, rows: int, columns: int) -> int | None:
    """Return the strategy's action, or None if every action ends the game."""

    def path(body: Body, goal: Cell) -> list[int] | None:
        """Find a path from the head to a cell, through cells that the body leaves in time; None if none is found.

        The search keeps only the earliest arrival at each cell, so it can miss paths that must wait for the body.
        """
        blocked = {cell: len(body) - 1 - index for index, cell in enumerate(body)}

        def successors(node: tuple[Cell, int]) -> Iterator[tuple[int, tuple[Cell, int]]]:
            last, time = node
            for action in range(4):
                cell = neighbour(last, action)
                free = 0 <= cell[0] < rows and 0 <= cell[1] < columns and blocked.get(cell, 0) <= time
                if free and cell not in seen:
                    seen.add(cell)
                    yield action, (cell, time + 1)

        seen = {body[0]}
        found = shortest_path((body[0], 0), successors, lambda node: node[0] == goal)
        return None if found is None else [action for _, action in found]

    to_food = path(body, food)
    if to_food:
        after = body
        for action in to_food:
            after = moved(after, action, food)
        if len(after) == rows * columns or path(after, after[-1]) is not None:
            return to_food[0]
    return _safest(body, food, rows, columns, lambda later: path(later, later[-1]))


def _safest(
    body: Body, food: Cell, rows: int, columns: int, way_to_tail: Callable[[Body], list[int] | None]
) -> int | None:
    best: tuple[int, int] | None = None
    for action in range(4):
        after = moved(body, action, food)
        head = after[0]
        if not (0 <= head[0] < rows and 0 <= head[1] < columns) or head in after[1:]:
            continue
        way = way_to_tail(after)
        room = 0 if way is None else len(way)
        if best is None or room > best[0]:
            best = room, action
    return None if best is None else best[1]


def moved(body: Body, action: int, food: Cell) -> Body:
    """Return the body after a step; it grows if the step reaches the food."""
    head = neighbour(body[0], action)
    return (head, *(body if head == food else body[:-1]))
