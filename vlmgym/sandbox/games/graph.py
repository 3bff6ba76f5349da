"""Graph reading: shortest paths and colours of neighbours in drawn graphs."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.task import LineState, LineTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import LOOKS, Colour, LookName, Point

LETTERS = "ABCDEFGHJKLM"
LOOK_NAMES: tuple[LookName, ...] = ("paper", "slate", "blueprint")
COLOURS = 3
"""Number of colours in questions about colours."""

PROMPT_V1 = """\
The image shows a graph: {nodes} nodes with letters, joined by straight edges. Edges may cross; only the circles are \
nodes.{lengths} {question}
Answer with {answers}.
{form}"""

LENGTHS = " The number on an edge is its length."
PERCEPTION = "the edges, one line per edge in alphabetical order: its two nodes in alphabetical order{length}, \
comma-separated"


class GraphConfig(TextConfig, TaskConfig):
    """Configuration of graph."""

    nodes: int = config_field("reasoning", [5, 6, 7, 9, 11], "Number of nodes.", ge=4, le=len(LETTERS))
    hops: int = config_field("reasoning", [2, 3, 3, 4, 5], "Number of edges on the shortest path.", ge=2, le=6)
    weighted: bool = config_field("reasoning", [False, False, True, True, True], "Edges have different lengths.")
    crossings: int = config_field("perception", [0, 1, 2, 3, 4], "Maximum number of crossing edges.", ge=0, le=6)

    def model_post_init(self, context: object) -> None:
        if self.hops > self.nodes // 2:
            raise ValueError(f"hops must be at most half of nodes={self.nodes}, got {self.hops}")


@dataclass(frozen=True, kw_only=True)
class GraphState(LineState):
    """Nodes at places in thousandths of the image's side; edges join two indices of nodes, the smaller one first.

    Each edge has a length, and a place for this number.

    A path question is about the first and the last node of `path`, the shortest one; in questions about colours,
    `colours` has the colour of each node, else none.
    """

    kind: Literal["length", "next", "colours"]
    look: LookName
    places: tuple[tuple[int, int], ...]
    edges: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]
    numbers: tuple[tuple[int, int], ...]
    path: tuple[int, ...]
    colours: tuple[int, ...]


class Graph(LineTask[GraphState]):
    """Answer a question about a drawn graph.

    Description:
        Questions ask for the length of the shortest path between two nodes, for the first node on this path, or for the
        only two neighbours of the same colour. There is exactly one shortest path. Without `weighted`, its length is
        its number of edges.

    Observation:
        An RGB image.

    Action:
        One line of text: a number, a letter, or two letters.

    Reward:
        1 if correct; 0 if wrong or unparsable. Two letters may be in either order.

    Episode end:
        After one turn. Metrics: `accuracy`, also for each kind of question.
    """

    name = "graph"
    title = "Graph reading"
    skills = ("perception", "search")
    attempts = 2000
    Config = GraphConfig
    State = GraphState
    prompt_template = PROMPT_V1
    answer = Line("your answer", lambda config: ((*map(str, range(1, 30)), *LETTERS[: config.nodes]), 1), longest=20)

    def generate(self, rng: np.random.Generator) -> GraphState | None:
        c = self.config
        places = _places(rng, c.nodes)
        numbers = _distinct_edges(places, c.crossings) if len(places) == c.nodes else None
        path = None if numbers is None else _random_path(rng, [*numbers], c.nodes, c.hops)
        if numbers is None or path is None:
            return None
        weights = {edge: int(rng.integers(1, 10)) if c.weighted else 1 for edge in numbers}
        kind: Literal["length", "next", "colours"] = pick(rng, ("length", "next", "colours"))
        edges = sorted(numbers) if kind == "colours" else _keep_shortest(weights, path)
        start, end = (LETTERS[path[end]] for end in (0, -1))
        steps = [weights[_edge(*step)] for step in pairwise(path)]
        reason = f"The shortest path is {'-'.join(LETTERS[node] for node in path)}, "
        reason += f"{' + '.join(map(str, steps))} = {sum(steps)} long."
        colours: tuple[int, ...] = ()
        if kind == "colours":
            pair = pick(rng, edges)
            coloured = _colour(rng, edges, pair, c.nodes)
            if coloured is None:
                return None
            colours, answer = coloured, LETTERS[pair[0]] + LETTERS[pair[1]]
            question = "Exactly one edge joins two nodes of the same colour. Which two?"
            reason = f"{answer[0]} and {answer[1]} are neighbours of the same colour."
        elif kind == "next":
            answer = LETTERS[path[1]]
            question = f"The shortest path from {start} to {end} starts at {start}. Which node comes next?"
        else:
            answer = str(sum(steps))
            unit = "sum of the lengths of its edges" if c.weighted else "number of its edges"
            question = f"How long is the shortest path from {start} to {end}, as the {unit}?"
        return GraphState(
            kind=kind,
            question=question,
            answer=answer,
            reason=reason,
            look=pick(rng, LOOK_NAMES),
            places=places,
            edges=tuple(edges),
            lengths=tuple(weights[edge] for edge in edges),
            numbers=tuple(numbers[edge] for edge in edges),
            path=path,
            colours=colours,
        )

    def is_correct(self, state: GraphState, action: str) -> bool:
        if state.kind != "colours":
            return super().is_correct(state, action)
        return sorted(filter(str.isalpha, action.upper().replace("AND", ""))) == sorted(state.answer)

    def prompt(self, state: GraphState) -> str:
        answers = {"length": "a number", "next": "a letter", "colours": "two letters, such as AB"}[state.kind]
        lengths, length = (LENGTHS, " and its length") if self.config.weighted else ("", "")
        perception = PERCEPTION.format(length=length)
        return self.fill_prompt(perception, question=state.question, answers=answers, lengths=lengths)

    def describe(self, state: GraphState) -> str:
        lines = []
        for (a, b), length in sorted(zip(state.edges, state.lengths)):
            lines.append(", ".join([LETTERS[a], LETTERS[b], *([str(length)] if self.config.weighted else [])]))
        return "\n".join(lines)

    # Drawing --------------------------------------------------------------------------------------------------------

    def paint(self, state: GraphState) -> list[ImageArray]:
        look, weighted = LOOKS[state.look], self.config.weighted
        canvas = self.canvas(look.page)
        if state.look == "blueprint":
            ruling = max(0.5 / canvas.unit, 1)
            for line in range(50, 1000, 50):
                canvas.rectangle(line, 0, ruling, 1000, look.panel)
                canvas.rectangle(0, line, 1000, ruling, look.panel)
        for a, b in state.edges:
            canvas.line(state.places[a], state.places[b], EDGE, look.ink)
        for (x, y), length in zip(state.numbers, state.lengths if weighted else ()):
            canvas.circle(x, y, 27, look.page)
            canvas.text(str(length), x, y, 26 * self.config.text, look.ink)
        for node, (x, y) in enumerate(state.places):
            ring = look.accents[state.colours[node]] if state.colours else look.ink
            width = RING if state.colours else EDGE
            canvas.circle(x, y, RADIUS + width, look.ink)
            canvas.circle(x, y, RADIUS + width - 3, ring)
            canvas.circle(x, y, RADIUS, NODE)
            canvas.text(LETTERS[node], x, y, TEXT * self.config.text, INK)
        return [canvas.pixels()]


# Layout ---------------------------------------------------------------------------------------------------------------
#
# Lengths are in thousandths of the image's side.

Edge = tuple[int, int]
RADIUS = 33
EDGE, RING = 5, 17
"""Width of an edge and of the coloured ring of a node."""
TEXT = 33
"""Cap height of the letters of nodes."""
NODE: Colour = (252, 251, 247)
INK: Colour = (30, 34, 44)
BORDER = 90
"""Minimum distance of a node's centre from the edges of the image."""
APART = 160
"""Minimum distance between two nodes."""
CLEAR = 60
"""Minimum distance of an edge from other nodes."""
FROM_NUMBER = 34
"""Minimum distance of an edge from the numbers of other edges."""
LONGEST = 560
"""Maximum length of an edge in the image."""
SHARP = math.radians(18)
"""Minimum angle between two edges at a node."""
TRIES = 20
DEGREE = 4
"""Maximum number of edges at a node."""


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


def _places(rng: np.random.Generator, nodes: int) -> tuple[tuple[int, int], ...]:
    """Place nodes in different squares of a coarse grid."""
    side = math.ceil(math.sqrt(nodes + 1))
    pitch = (1000 - 2 * BORDER) / side
    places: list[tuple[int, int]] = []
    for square in rng.permutation(side * side).tolist():
        for _ in range(TRIES):
            x, y = (BORDER + int(pitch * (at + rng.random())) for at in divmod(square, side))
            if all(math.dist((x, y), other) >= APART for other in places):
                places.append((x, y))
                break
        if len(places) == nodes:
            break
    return tuple(places)


def _distinct_edges(places: Sequence[tuple[int, int]], crossings: int) -> dict[Edge, tuple[int, int]] | None:
    """Return edges that can be told apart, short ones first, each with a place for its number.

    At most so many edges cross. None if a node has no edge.
    """
    edges: dict[Edge, tuple[int, int]] = {}
    degrees = [0] * len(places)
    for a, b in sorted(combinations(range(len(places)), 2), key=lambda edge: math.dist(*(places[i] for i in edge))):
        (x0, y0), (x1, y1) = ends = places[a], places[b]
        if max(degrees[a], degrees[b]) >= DEGREE or math.dist(*ends) > LONGEST:
            continue
        if any(_distance(place, *ends) < CLEAR for node, place in enumerate(places) if node not in (a, b)):
            continue
        if any(_distance(place, *ends) < FROM_NUMBER for place in edges.values()):
            continue
        others = [(places[c], places[d]) for c, d in edges]
        angles = [_angle(places, node, a + b - node, sum(edge) - node) for edge in edges for node in {a, b} & {*edge}]
        crossed = sum(_cross(ends, other) for other in others)
        if min(angles, default=math.pi) < SHARP or crossed > crossings:
            continue
        points = [(round(x0 + (x1 - x0) * t), round(y0 + (y1 - y0) * t)) for t in (0.5, 0.42, 0.58, 0.35, 0.65)]
        clear = [p for p in points if all(_distance(p, *other) >= FROM_NUMBER for other in others)]
        if clear:
            crossings -= crossed
            edges[a, b] = clear[0]
            degrees[a], degrees[b] = degrees[a] + 1, degrees[b] + 1
    return edges if min(degrees) else None


def _distance(point: Point, start: Point, end: Point) -> float:
    """Return the distance of a point from a line segment."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / (dx * dx + dy * dy)
    along = min(max(along, 0.0), 1.0)
    return math.hypot(point[0] - start[0] - along * dx, point[1] - start[1] - along * dy)


def _angle(places: Sequence[Point], node: int, one: int, other: int) -> float:
    """Return the angle at a node between the directions of two others, 0 to pi."""
    x, y = places[node]
    first, second = (math.atan2(places[end][1] - y, places[end][0] - x) for end in (one, other))
    return abs(math.remainder(first - second, math.tau))


def _cross(first: tuple[Point, Point], second: tuple[Point, Point]) -> bool:
    def side(a: Point, b: Point, c: Point) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    (a, b), (c, d) = first, second
    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


# Paths and colours ----------------------------------------------------------------------------------------------------


def _neighbours(edges: Sequence[Edge], nodes: int) -> list[list[int]]:
    near: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    return near


def _random_path(rng: np.random.Generator, edges: Sequence[Edge], nodes: int, hops: int) -> tuple[int, ...] | None:
    """Return a random path with `hops` edges, if the walk does not end early."""
    near, path = _neighbours(edges, nodes), [int(rng.integers(nodes))]
    while len(path) <= hops:
        fresh = [node for node in near[path[-1]] if node not in path]
        if not fresh:
            return None
        path.append(pick(rng, fresh))
    return tuple(path)


def _keep_shortest(weights: Mapping[Edge, int], path: Sequence[int]) -> list[Edge]:
    """Add edges to a path as long as it is the only shortest one; return them with the path's."""
    chosen = {_edge(*step): weights[_edge(*step)] for step in pairwise(path)}
    for edge, weight in weights.items():
        if edge not in chosen and shortest(more := {**chosen, edge: weight}, path[0], path[-1]) == tuple(path):
            chosen = more
    return sorted(chosen)


def shortest(weights: Mapping[Edge, int], start: int, end: int) -> tuple[int, ...] | None:
    """Return the only shortest path from `start` to `end`; None if there are several or none."""
    near: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (a, b), weight in weights.items():
        near[a].append((b, weight))
        near[b].append((a, weight))
    lengths: dict[int, int] = {}
    queue = [(0, start)]
    while queue:
        length, node = heapq.heappop(queue)
        if node not in lengths:
            lengths[node] = length
            for other, weight in near[node]:
                heapq.heappush(queue, (length + weight, other))
    path = [end]
    while path[-1] != start:
        node = path[-1]
        before = [other for other, weight in near[node] if lengths.get(other, math.inf) + weight == lengths.get(node)]
        if len(before) != 1:
            return None
        path += before
    return tuple(path[::-1])


def _colour(rng: np.random.Generator, edges: Sequence[Edge], pair: Edge, nodes: int) -> tuple[int, ...] | None:
    """Colour the nodes at random so that only one pair of neighbours has the same colour; None if this fails."""
    near = _neighbours(edges, nodes)
    colours: dict[int, int] = {}
    for node in [*pair, *(node for node in rng.permutation(nodes).tolist() if node not in pair)]:
        if node == pair[1]:
            colours[node] = colours[pair[0]]
            continue
        free = [colour for colour in range(COLOURS) if all(colours.get(other) != colour for other in near[node])]
        if not free:
            return None
        colours[node] = pick(rng, free)
    return tuple(colours[node] for node in range(nodes))
