"""Shortest-path search and a plan cache, for puzzle oracles."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

NodeT = TypeVar("NodeT", bound=Hashable)
MoveT = TypeVar("MoveT")
Plan = Sequence[tuple[NodeT, MoveT]]
"""Each node of a path except the last, with the move to make there."""

MOST_NODES = 500_000
"""Limit on the number of nodes found by a search; see `shortest_path`."""
CACHED = 100_000
"""A cache with more nodes than this is emptied before the next plan is added."""


def shortest_path(
    start: NodeT,
    successors: Callable[[NodeT], Iterable[tuple[MoveT, NodeT]]],
    solved: Callable[[NodeT], bool],
) -> Plan[NodeT, MoveT] | None:
    """Search breadth-first for a shortest path to a solved node; return None if none is found.

    The search goes no deeper once it has found more than `MOST_NODES` nodes. If there are several shortest paths, the
    first in the order of `successors` is returned. A search from a later node of this path therefore returns the rest
    of it.
    """
    if solved(start):
        return ()
    parents: dict[NodeT, tuple[NodeT, MoveT] | None] = {start: None}
    layer = [start]
    while layer and len(parents) <= MOST_NODES:
        following = []
        for node in layer:
            for move, after in successors(node):
                if after in parents:
                    continue
                parents[after] = node, move
                if solved(after):
                    return _path(parents, after)
                following.append(after)
        layer = following
    return None


def shortest_path_to(
    goals: Iterable[NodeT],
    start: NodeT,
    successors: Callable[[NodeT], Iterable[tuple[MoveT, NodeT]]],
    predecessors: Callable[[NodeT], Iterable[NodeT]],
) -> Plan[NodeT, MoveT] | None:
    """Return the path that `shortest_path` finds, or None, by searching from both ends, which needs fewer nodes.

    `predecessors` yields the nodes from which one move leads to a node. The search goes no deeper once it has found
    more than `MOST_NODES` nodes from both ends together.
    """
    parents: dict[NodeT, tuple[NodeT, MoveT] | None] = {start: None}
    left = dict.fromkeys(goals, 0)  # moves to the nearest goal
    layer, last_layer, depth = [start], {*left}, 0
    while layer and last_layer and len(parents) + len(left) <= MOST_NODES:
        if (node := next((node for node in layer if node in left), None)) is not None:
            path = [*_path(parents, node)]
            while left[node]:
                move, after = next(step for step in successors(node) if left.get(step[1]) == left[node] - 1)
                path.append((node, move))
                node = after
            return path
        if len(layer) <= len(last_layer):
            following = []
            for node in layer:
                for move, after in successors(node):
                    if after not in parents:
                        parents[after] = node, move
                        following.append(after)
            layer = following
        else:
            depth += 1
            last_layer = {before for node in last_layer for before in predecessors(node) if before not in left}
            left.update(dict.fromkeys(last_layer, depth))
    return None


def distances(goals: Iterable[NodeT], before: Callable[[NodeT], Iterable[NodeT]]) -> dict[NodeT, int]:
    """Return the fewest moves to a goal from each node, nearest first, by breadth-first search.

    `before` yields the nodes from which one move leads to a node.
    """
    moves = dict.fromkeys(goals, 0)
    waiting = [*moves]
    for node in waiting:
        for earlier in before(node):
            if earlier not in moves:
                moves[earlier] = moves[node] + 1
                waiting.append(earlier)
    return moves


def _path(parents: dict[NodeT, tuple[NodeT, MoveT] | None], node: NodeT) -> Plan[NodeT, MoveT]:
    path = []
    while (step := parents[node]) is not None:
        path.append(step)
        node = step[0]
    return path[::-1]


class Planner(Generic[NodeT, MoveT]):
    """Planner that caches its plans, so that only the first move of a solution needs a search.

    `plan` returns a plan from a node, or None. From a later node of a plan, it must return the rest of this plan.
    """

    def __init__(self, plan: Callable[[NodeT], Plan[NodeT, MoveT] | None]) -> None:
        self._plan = plan
        self._moves: dict[NodeT, MoveT | None] = {}

    def move(self, node: NodeT) -> MoveT | None:
        """Return the move to make at a node; None if there is no plan or nothing left to do."""
        if node not in self._moves:
            if len(self._moves) > CACHED:
                self._moves.clear()
            self._moves[node] = None
            self._moves.update(self._plan(node) or ())
        return self._moves[node]
