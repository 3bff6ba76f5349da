"""Solver for Sokoban: breadth-first search over the positions of the player and the boxes.

Boxes are not pushed to cells from which they could never reach a target. Solutions have the fewest moves. Rooms at
level 5 need at most a few hundred thousand nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from vlmgym.sandbox.games.search import Plan, shortest_path
from vlmgym.sandbox.games.sokoban.rooms import Room, steps

Node = tuple[int, int]
"""Player's cell, and the boxes' cells as a bit mask."""


def solve(room: Room, columns: int) -> Plan[Node, int] | None:
    """Return a shortest solution, or None if none exists or the search exceeds the default limit."""
    moves = tuple(enumerate(steps(columns)))
    floor, targets = room.floor, room.targets
    alive = live_cells(floor, targets, columns)
    if room.boxes & ~alive:
        return None

    def successors(node: Node) -> Iterator[tuple[int, Node]]:
        player, boxes = node
        for action, move in moves:
            to = player + move
            if boxes >> to & 1:
                beyond = 1 << to + move
                if beyond & alive and not beyond & boxes:
                    yield action, (to, boxes ^ (1 << to | beyond))
            elif floor >> to & 1:
                yield action, (to, boxes)

    return shortest_path((room.player, room.boxes), successors, lambda node: node[1] == targets)


@lru_cache(maxsize=1024)
def live_cells(floor: int, targets: int, columns: int) -> int:
    """Return the set of cells from which a single box can be pushed to a target, found by pulling boxes away."""
    alive, frontier = targets, [cell for cell in range(targets.bit_length()) if targets >> cell & 1]
    while frontier:
        cell = frontier.pop()
        for move in steps(columns):
            to = cell + move
            if floor >> to & 1 and floor >> to + move & 1 and not alive >> to & 1:
                alive |= 1 << to
                frontier.append(to)
    return alive
