"""Routes: follow directions and marked routes on a city map."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

import numpy as np

from vlmgym.sandbox.answers.cells import Cell
from vlmgym.sandbox.answers.choice import COMPASS, neighbour
from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.task import LineState, LineTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import Canvas, Colour, Point, text_width
from vlmgym.sandbox.games.scenes.scene import NUMBERS

PLACES = (
    "Bank", "Bakery", "Cafe", "Church", "Cinema", "Gym", "Hotel", "Market", "Museum", "Office", "Opera", "Pool", "Post",
    "School", "Tower", "Zoo",
)  # fmt: skip
SIDES = {1: "right", 3: "left"}
"""Change of heading, counted in `DIRECTIONS`."""
LANDMARKS = 9

PROMPT_V1 = """\
The image shows a map with streets, crossings and places; north is up. {question}
Answer with {answers}.
{form}"""


class RoutesConfig(TextConfig, TaskConfig):
    """Configuration of routes."""

    legs: int = config_field("reasoning", [1, 2, 3, 4, 6], "Straight parts of the route.", ge=1, le=6)
    relative: bool = config_field(
        "reasoning", [False, False, True, True, True], "Directions say left and right instead of north or east."
    )
    streets: int = config_field("perception", [5, 5, 6, 6, 7], "Streets in each of the two directions.", ge=5, le=7)
    bends: int = config_field(
        "perception",
        [0, 10, 16, 20, 24],
        "Maximum shift of crossings, in thousandths of the image's side.",
        ge=0,
        le=25,
    )


@dataclass(frozen=True, kw_only=True)
class RoutesState(LineState):
    """Places at crossings, the route over crossings, and the shift of every crossing, row by row.

    Blocks between crossings are 0 (houses), 1 (park) or 2 (water), row by row.
    """

    places: tuple[tuple[str, tuple[int, int]], ...]
    route: tuple[tuple[int, int], ...]
    shifts: tuple[tuple[int, int], ...]
    blocks: tuple[int, ...]


class Routes(LineTask[RoutesState]):
    """Find the way on a city map.

    Description:
        Questions give directions from a place and ask which place they lead to, or show a route as a line and ask how
        often somebody who walks along it turns left or right. Streets may bend a little at crossings.

    Observation:
        An RGB image.

    Action:
        One line of text: the name of a place, or a number.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metrics: `accuracy`, also for each kind of question.
    """

    name = "routes"
    skills = ("perception", "spatial")
    attempts = 100_000
    Config = RoutesConfig
    State = RoutesState
    prompt_template = PROMPT_V1
    perception_form = (
        "the crossings, one line per street from west to east, comma-separated: the name of the place at the crossing, "
        "or - without one"
    )
    answer = Line("your answer", lambda config: ((*PLACES, *map(str, range(config.legs))), 1), longest=40)

    def generate(self, rng: np.random.Generator) -> RoutesState | None:
        c = self.config
        walked = _walk(rng, c.legs, c.streets)
        if walked is None:
            return None
        legs, route = walked
        crossings = list(product(range(c.streets), repeat=2))
        others = [cell for cell in crossings if cell not in (route[0], route[-1])]
        chosen = [route[0], route[-1], *(others[i] for i in rng.permutation(len(others))[: LANDMARKS - 2])]
        names = [PLACES[i] for i in rng.permutation(len(PLACES))[:LANDMARKS]]
        kind: Literal["directions", "turns"] = pick(rng, ("directions", "turns")) if c.legs > 1 else "directions"
        way = ", ".join(f"{length} {COMPASS[heading]}" for heading, length in legs)
        if kind == "directions":
            question = f"Start at the {names[0]}. {self._directions(legs)} Which place do you reach?"
            answer = names[1]
            reason = f"From the {names[0]}, the way is, in blocks, {way}. It ends at the {answer}."
        else:
            side = pick(rng, ("left", "right"))
            turns = [SIDES[(after - before) % 4] for (before, _), (after, _) in pairwise(legs)]
            answer = str(turns.count(side))
            question = (
                f"You walk along the red route, starting at the {names[0]}. How many times do you turn {side}? "
                "Bends of a street are not turns."
            )
            reason = f"The route is, in blocks, {way}. The turns are {', '.join(turns)}: {answer} to the {side}."
        shifts = rng.integers(-c.bends, c.bends + 1, (len(crossings), 2)).tolist()
        blocks = rng.choice(3, (c.streets - 1) ** 2, p=(0.72, 0.18, 0.1)).tolist()
        return RoutesState(
            kind=kind,
            question=question,
            answer=answer,
            reason=reason,
            places=tuple(sorted(zip(names, chosen), key=lambda place: place[1])),
            route=tuple(route),
            shifts=tuple((x, y) for x, y in shifts),
            blocks=tuple(blocks),
        )

    def _directions(self, legs: list[Leg]) -> str:
        parts = []
        for number, (heading, length) in enumerate(legs):
            blocks = f"{NUMBERS[length]} block{'' if length == 1 else 's'}"
            if not self.config.relative:
                parts.append(f"{'Go' if not number else 'then'} {blocks} {COMPASS[heading]}")
            elif not number:
                parts.append(f"Facing {COMPASS[heading]}, go {blocks}")
            else:
                parts.append(f"turn {SIDES[(heading - legs[number - 1][0]) % 4]} and go {blocks}")
        return ", ".join(parts) + "."

    def prompt(self, state: RoutesState) -> str:
        answers = "the name of a place" if state.kind == "directions" else "a number"
        return self.fill_prompt(question=state.question, answers=answers)

    def is_correct(self, state: RoutesState, action: str) -> bool:
        return super().is_correct(state, action.strip().removeprefix("the ").removeprefix("The "))

    def describe(self, state: RoutesState) -> str:
        names, count = {cell: name for name, cell in state.places}, self.config.streets
        return "\n".join(", ".join(names.get((row, column), "-") for column in range(count)) for row in range(count))

    # Drawing --------------------------------------------------------------------------------------------------------

    def crossing_at(self, state: RoutesState, cell: Cell) -> Point:
        """Place of a crossing in thousandths of the image's side."""
        streets = self.config.streets
        (row, column), (x, y) = cell, state.shifts[cell[0] * streets + cell[1]]
        pitch = (1000 - 2 * BORDER) / (streets - 1)
        return BORDER + column * pitch + x, BORDER + row * pitch + y

    def paint(self, state: RoutesState) -> list[ImageArray]:
        canvas, count = self.canvas(LAND), self.config.streets
        corners = {cell: self.crossing_at(state, cell) for cell in product(range(count), range(count))}
        for index, block in enumerate(state.blocks):
            row, column = divmod(index, count - 1)
            around = [corners[row + dr, column + dc] for dr, dc in ((0, 0), (0, 1), (1, 1), (1, 0))]
            canvas.polygon(around, (HOUSES, PARK, WATER)[block])
            if block == 0:
                _paint_houses(canvas, around, index)
        streets = [[(row, column) for column in range(count)] for row in range(count)]
        streets += [[(row, column) for row in range(count)] for column in range(count)]
        for width, colour in ((30, KERB), (22, STREET)):
            for street in streets:
                for start, end in pairwise(street):
                    canvas.line(corners[start], corners[end], width, colour)
            for x, y in corners.values():
                canvas.circle(x, y, width / 2, colour)
        if state.kind == "turns":
            for start, end in pairwise(state.route):
                canvas.line(corners[start], corners[end], 11, ROUTE)
                canvas.circle(*corners[end], 5.5, ROUTE)
            canvas.circle(*corners[state.route[0]], 16, ROUTE)
        for name, cell in state.places:
            _paint_place(canvas, name, *corners[cell], TEXT * self.config.text)
        return [canvas.pixels()]


def _paint_houses(canvas: Canvas, around: list[Point], index: int) -> None:
    """Draw four houses in a block."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = around

    def at(u: float, v: float) -> Point:
        top, bottom = (x0 + (x1 - x0) * u, y0 + (y1 - y0) * u), (x3 + (x2 - x3) * u, y3 + (y2 - y3) * u)
        return top[0] + (bottom[0] - top[0]) * v, top[1] + (bottom[1] - top[1]) * v

    for house, (u, v) in enumerate(((0.17, 0.17), (0.54, 0.17), (0.17, 0.54), (0.54, 0.54))):
        width = 0.2 + 0.09 * ((index * 7 + house * 3) % 2)
        corners = [at(u, v), at(u + width, v), at(u + width, v + 0.28), at(u, v + 0.28)]
        canvas.polygon(corners, ROOFS[(index * 5 + house) % len(ROOFS)])


def _paint_place(canvas: Canvas, name: str, x: float, y: float, height: float) -> None:
    half, up = text_width(name, height * canvas.unit) / 2 / canvas.unit + 9, 34
    for dy, colour in ((3, SHADOW), (0, SIGN)):
        canvas.rectangle(x - half, y - up - 19 + dy, 2 * half, 38, colour, 9)
        canvas.polygon([(x - 11, y - up + 18), (x + 11, y - up + 18), (x, y)], colour)
    canvas.text(name, x, y - up, height, INK)


BORDER = 112
"""Distance of the outer streets from the edges of the image, in thousandths of its side, as all lengths below."""
TEXT = 20
"""Cap height of names."""
LAND: Colour = (233, 229, 220)
HOUSES: Colour = (224, 219, 208)
PARK: Colour = (178, 214, 160)
WATER: Colour = (160, 202, 232)
ROOFS: tuple[Colour, ...] = ((203, 190, 175), (212, 200, 184), (196, 184, 172), (208, 186, 170))
KERB: Colour = (206, 198, 184)
STREET: Colour = (255, 255, 255)
ROUTE: Colour = (222, 46, 60)
SIGN: Colour = (36, 62, 110)
SHADOW: Colour = (150, 148, 146)
INK: Colour = (255, 255, 255)


# Routes ---------------------------------------------------------------------------------------------------------------

Leg = tuple[int, int]
"""Heading, as an index of `DIRECTIONS`, and length of a straight part of a route."""


def _walk(rng: np.random.Generator, count: int, streets: int) -> tuple[list[Leg], list[Cell]] | None:
    """Return the straight parts of a random route that never meets itself, and its crossings in order."""
    row, column = rng.integers(streets, size=2).tolist()
    cell, heading = (row, column), int(rng.integers(4))
    legs: list[Leg] = []
    crossings = [cell]
    for number in range(count):
        if number:
            heading = (heading + pick(rng, (1, 3))) % 4
        length = int(rng.integers(1, 4))
        for _ in range(length):
            cell = neighbour(cell, heading)
            if cell in crossings or not (0 <= cell[0] < streets and 0 <= cell[1] < streets):
                return None
            crossings.append(cell)
        legs.append((heading, length))
    return legs, crossings
