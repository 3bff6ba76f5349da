"""Where the images of games without a board have letters, numbers or other parts that readers read.

A function per game returns half the side and the centres (x, y) of labelled squares of the last image, in pixels before
degradation. Their size must not depend on the reasoning level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vlmgym.sandbox.drawing.canvas import Point, text_width
from vlmgym.sandbox.drawing.shapes import cube_faces, whole_pixel
from vlmgym.sandbox.games import charts, clocks, forms, graph, grids, matrices, routes, tracking

Marks = tuple[float, Mapping[str, Point]]


def _billiards(game: Any, state: Any) -> Marks:
    """Numbers of the pockets or of the arrows."""
    if state.kind == "pocket":
        middles = [game.at(pocket) for pocket in state.pockets]
    else:
        middles = [game.label_at(state.ball, arrow) for arrow in state.arrows]
    return game.unit * 0.4, {str(number): middle for number, middle in enumerate(middles, 1)}


def _blocks(game: Any, state: Any) -> Marks:
    """Sides of the upper cube of the highest column, of those that nothing hides."""
    (x, y), edge = game.layout
    columns = [(h, r + c, r, c) for r, line in enumerate(state.heights) for c, h in enumerate(line)]
    height, _, row, column = max(columns)
    faces = zip(("top", "left", "right"), cube_faces(column, row, height - 1))
    middles = {name: tuple(sum(axis) / 4 for axis in zip(*face)) for name, face in faces}
    return game.config.size / 50, {name: (x + edge * px, y + edge * py) for name, (px, py) in middles.items()}


def _canary(game: Any, state: Any) -> Marks:
    size = game.config.size
    return size * game.config.height * 0.7, {str(state.digits[-1][-1]): (size / 2, size / 2)}


def _charts(game: Any, state: Any) -> Marks:
    """First letters of names; their look is part of the label."""
    unit = game.config.size / 1000
    height = charts.TEXT * game.config.text * unit
    places = charts.name_places(state).items()
    return 20 * unit, {
        f"{name[0]} {state.look}": (_initial_at(name, x * unit, height), y * unit) for name, (x, y) in places
    }


def _clocks(game: Any, state: Any) -> Marks:
    places = [clocks.plate_at(*clock) for clock in clocks.layout(len(state.times), game.config.size)]
    return 0.026 * game.config.size, dict(zip(state.names, places))


def _corridors(game: Any, state: Any) -> Marks:
    """Wall on the left at the start."""
    size, (wall, _, _) = game.config.size, game.describe(state).partition(",")
    return size * 0.09, {wall: (size * 0.1, size / 2)}


def _forms(game: Any, state: Any) -> Marks:
    """First letters of labels; their look is part of the label."""
    unit = game.config.size / 1000
    height = forms.TEXT * game.config.text * unit
    return 20 * unit, {
        f"{label[0]} {state.look}": (
            forms.LABEL * unit + text_width(label[0], height) / 2,
            forms.row_at(index) * unit,
        )
        for index, label in enumerate(state.labels)
    }


def _graph(game: Any, state: Any) -> Marks:
    unit = game.config.size / 1000
    places = {graph.LETTERS[node]: (x * unit, y * unit) for node, (x, y) in enumerate(state.places)}
    return graph.RADIUS * 0.7 * unit, places


def _grids(game: Any, state: Any) -> Marks:
    size = game.config.size
    places = {label: whole_pixel(*grids.label_at(row), size / 1000) for row, label in enumerate(grids.LABELS)}
    return 0.022 * size, places


def _matrices(game: Any, state: Any) -> Marks:
    """Numbers of the choices."""
    size, count = game.config.size, game.config.choices
    places = {number: matrices.choice_at(number, count) for number in range(1, count + 1)}
    return 0.019 * size, {
        str(number): whole_pixel(x - matrices.CELL / 2 - 18, y, size / 1000) for number, (x, y) in places.items()
    }


def _rotation(game: Any, state: Any) -> Marks:
    """Numbers of the choices."""
    c = game.config
    return c.size / 24, {str(number): game.label_at(number) for number in range(1, c.choices + 1)}


def _routes(game: Any, state: Any) -> Marks:
    """First letters of the places' names."""
    unit = game.config.size / 1000
    height = routes.TEXT * game.config.text * unit
    places = [(name, game.crossing_at(state, cell)) for name, cell in state.places]
    return 18 * unit, {name[0]: (_initial_at(name, x * unit, height), (y - 34) * unit) for name, (x, y) in places}


def _tracking(game: Any, state: Any) -> Marks:
    """Numbers of the balls."""
    unit = game.config.size / 1000
    centres = zip(state.numbers, state.path[-1])
    return tracking.RADIUS * unit, {str(number): (x * unit, y * unit) for number, (x, y) in centres}


def _initial_at(text: str, x: float, height: float) -> float:
    """Return the centre of the first letter of a line of text that is centred at `x`, in pixels."""
    return x - (text_width(text, height) - text_width(text[0], height)) / 2


MARKS: Mapping[str, Callable[[Any, Any], Marks]] = {
    "billiards": _billiards,
    "blocks": _blocks,
    "canary": _canary,
    "charts": _charts,
    "clocks": _clocks,
    "corridors": _corridors,
    "forms": _forms,
    "graph": _graph,
    "grids": _grids,
    "matrices": _matrices,
    "rotation": _rotation,
    "routes": _routes,
    "tracking": _tracking,
}
"""Functions that return the marks of a state, by the name of the game."""
