"""Billiards: find the pocket into which a ball rolls, or the shot that pockets it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, retry
from vlmgym.sandbox.core.task import ChoiceState, ChoiceTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import BLACK, WHITE, Canvas, Colour, Point, blend

Spot = tuple[int, int]
"""A crossing of the table's lines: x from the left and y from the top, in units; or a direction."""
Kind = Literal["pocket", "shot"]

WIDTH, HEIGHT = SIZE = 14, 11
"""Size of the table in units, from cushion to cushion."""
PARTS = 20
"""Parts of a unit, so that the next two numbers are whole."""
POCKET = 12
"""Half the width of a pocket in parts of a unit."""
MARGIN = 5
"""Minimum distance in parts between the edge of a pocket, or a corner, and a point where a ball meets a cushion."""
LENGTHS = 2.8, 5.0
"""Minimum and maximum length of an arrow in units."""
APART = 18
"""Minimum angle between two arrows in degrees."""
BETWEEN = 3
"""Minimum distance between the middles of two pockets along the cushions in units."""
ATTEMPTS = 5000

FELTS: Sequence[Colour] = ((24, 112, 72), (30, 84, 140), (132, 38, 52))
WOODS: Sequence[Colour] = ((96, 56, 30), (64, 40, 28))
HOLE: Colour = (12, 12, 14)
BALL: Colour = (250, 248, 238)
ARROW: Colour = (255, 226, 96)
TARGET: Colour = (255, 120, 40)

PROMPT_V1 = """\
The image shows a billiard table from above, with pockets in its cushions and a white ball. A ball rolls without \
friction in the direction of its arrow. Where its centre meets the thin line along a cushion, it falls into a pocket, \
if there is one, or else bounces off as light off a mirror. The lines that would join the marks on opposite cushions \
cross under the ball and under the tip of each arrow. {question}
Answer with the number.
{form}"""


_POINT = r"\([\d.]{1,8}, [\d.]{1,8}\)"
"""Regular expression of a point on a cushion."""


class BilliardsConfig(TaskConfig):
    """Configuration of billiards."""

    choices: int = config_field(
        "reasoning", [4, 5, 6, 8, 10], "Number of pockets, or of arrows to choose from.", ge=2, le=10
    )
    bounces: int = config_field("reasoning", [0, 1, 2, 3, 4], "Number of bounces before the pocket.", ge=0, le=5)
    shots: bool = config_field(
        "reasoning", [False, False, True, True, True], "Half of the questions ask for the arrow that leads to a pocket."
    )
    coordinates: bool = config_field(
        "perception", [True, True, False, False, False], "Number the marks at the upper and the left cushion."
    )
    grid: float = config_field(
        "perception", [0.3, 0.18, 0.1, 0.05, 0.0], "Strength of the lines that join the marks.", ge=0.0, le=1.0
    )
    number_size: float = config_field(
        "perception", [0.6, 0.55, 0.5, 0.45, 0.4], "Height of the numbers in units of the table.", ge=0.2, le=0.7
    )


@dataclass(frozen=True, kw_only=True)
class BilliardsState(ChoiceState):
    """A table.

    Attributes:
        kind: Kind of question.
        pockets: Middles of the pockets, in the order of their numbers.
        ball: Position of the ball.
        arrows: Directions of the arrows from the ball to their tips; one for the kind `pocket`.
        target: Index of the pocket for the kind `shot`, else 0.
        look: Selects the colours.
    """

    kind: Kind
    pockets: tuple[Spot, ...]
    ball: Spot
    arrows: tuple[Spot, ...]
    target: int
    look: int


class Billiards(ChoiceTask[BilliardsState]):
    """Find the pocket into which a ball rolls, or the shot that pockets it.

    Description:
        A ball rolls in a straight line and bounces off the cushions until it meets a pocket, after exactly `bounces`
        bounces. One kind of question shows an arrow and asks for the pocket; the other marks a pocket and asks for the
        arrow that leads there. Paths are computed exactly, and no ball meets a cushion within a quarter of a
        unit of the edge of a pocket or of a corner.

    Observation:
        The table from above as an RGB image, 14 by 11 units, with marks on the cushions at every unit.

    Action:
        `Discrete(choices, start=1)`: the number of a pocket or of an arrow.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metric: accuracy.
    """

    name = "billiards"
    statements = re.compile(
        rf"The ball meets the cushions at {_POINT}(?:, {_POINT}){{0,40}}, which is in the end "
        r"(?:(?:no|another|the orange) pocket|pocket \d{1,2})\."
    )
    skills = ("spatial",)
    Config = BilliardsConfig
    State = BilliardsState
    prompt_template = PROMPT_V1
    perception_form = (
        "x and y of the ball, and in further lines of the tip of each arrow in the order of their numbers, "
        "comma-separated, in units between marks from the left and from the upper cushion"
    )

    def generate(self, rng: np.random.Generator) -> BilliardsState:
        kind: Kind = ("pocket", "shot")[int(rng.integers(1 + self.config.shots))]
        return retry(lambda: self._attempt(kind, rng), ATTEMPTS, f"shot with {self.config.bounces} bounces")

    def _attempt(self, kind: Kind, rng: np.random.Generator) -> BilliardsState | None:
        """Place pockets and a ball, and choose a shot into a pocket, and other shots; None if there are too few."""
        c = self.config
        pockets = place_pockets(c.choices, rng)
        room = 3 if kind == "pocket" else 5
        ball = int(rng.integers(room, WIDTH + 1 - room)), int(rng.integers(room, HEIGHT + 1 - room))
        ways = [way for way in (WAYS[i] for i in rng.permutation(len(WAYS)).tolist()) if _is_inside(ball, way)]
        arrows: list[Spot] = []
        for way in ways:
            end = roll(ball, way, pockets, c.bounces)
            if end is not None and end[0] is not None and end[1] == c.bounces:
                arrows, answer = [way], end[0]
                break
        else:
            return None
        target = answer if kind == "shot" else 0
        if kind == "shot":
            for way in ways:
                if len(arrows) < c.choices and all(_angle(way, other) >= APART for other in arrows):
                    end = roll(ball, way, pockets, c.bounces)
                    if end is not None and end[0] != target:
                        arrows.append(way)
            if len(arrows) < c.choices:
                return None
            order = rng.permutation(c.choices).tolist()
            arrows, answer = [arrows[i] for i in order], order.index(0)
        look = int(rng.integers(len(FELTS) * len(WOODS)))
        return BilliardsState(
            kind=kind,
            pockets=pockets,
            ball=ball,
            arrows=tuple(arrows),
            target=target,
            look=look,
            answer=answer + 1,
        )

    def describe(self, state: BilliardsState) -> str:
        """Positions of the ball and of the tips of the arrows."""
        x, y = state.ball
        return "\n".join(f"{x + dx}, {y + dy}" for dx, dy in ((0, 0), *state.arrows))

    def prompt(self, state: BilliardsState) -> str:
        if state.kind == "pocket":
            question = "Into which pocket does the ball roll?"
        else:
            times = f"{self.config.bounces} bounces" if self.config.bounces != 1 else "1 bounce"
            question = f"Which of the numbered arrows leads into the orange pocket after at most {times}?"
        return self.fill_prompt(question=question)

    def explain(self, state: BilliardsState, action: int) -> str:
        arrow = state.arrows[action - 1 if state.kind == "shot" else 0]
        hits, parts = _hits(state.ball, arrow, self.config.bounces)
        points = [f"({x / parts:.3g}, {y / parts:.3g})" for x, y in hits]
        end = roll(state.ball, arrow, state.pockets, self.config.bounces)
        assert end is not None
        if end[0] is None:
            pocket = "no pocket"
        elif state.kind == "pocket":
            pocket = f"pocket {end[0] + 1}"
        else:
            pocket = "the orange pocket" if end[0] == state.target else "another pocket"
        return f"The ball meets the cushions at {', '.join(points[: end[1] + 1])}, which is in the end {pocket}."

    # Image ----------------------------------------------------------------------------------------------------------

    def paint(self, state: BilliardsState) -> list[ImageArray]:
        c = self.config
        felt, wood = FELTS[state.look % len(FELTS)], WOODS[state.look // len(FELTS) % len(WOODS)]
        canvas, unit = Canvas(c.size, c.size, blend(felt, (206, 200, 190), 0.86)), self.unit
        self._paint_table(canvas, felt, wood)
        for number, pocket in enumerate(state.pockets):
            is_target = state.kind == "shot" and number == state.target
            x, y = self.at(pocket)
            canvas.circle(x, y, unit * 0.78, TARGET if is_target else blend(wood, BLACK, 0.5))
            canvas.circle(x, y, unit * POCKET / PARTS, HOLE)
            if state.kind == "pocket":
                canvas.text(str(number + 1), x, y, unit * c.number_size, WHITE)
        for number, arrow in enumerate(state.arrows):
            self._paint_arrow(canvas, state.ball, arrow, str(number + 1) if state.kind == "shot" else "")
        x, y = self.at(state.ball)
        for shift, radius, colour in (
            (0.1, 0.5, blend(felt, BLACK, 0.45)),
            (0, 0.5, blend(BALL, BLACK, 0.3)),
            (0, 0.44, BALL),
        ):
            canvas.circle(x + shift * unit, y + shift * unit, radius * unit, colour)
        canvas.circle(x - 0.14 * unit, y - 0.14 * unit, 0.12 * unit, WHITE)
        return [canvas.pixels()]

    def _paint_table(self, canvas: Canvas, felt: Colour, wood: Colour) -> None:
        c, unit = self.config, self.unit
        left, top = self.at((0, 0))
        for reach, colour, radius in (
            (1.5, blend(wood, BLACK, 0.4), 0.9),
            (1.42, wood, 0.85),
            (0.6, blend(felt, BLACK, 0.45), 0.2),
            (0.52, blend(felt, BLACK, 0.25), 0.15),
        ):
            wide, high = (WIDTH + 2 * reach) * unit, (HEIGHT + 2 * reach) * unit
            canvas.rectangle(left - reach * unit, top - reach * unit, wide, high, colour, radius * unit)
        canvas.rectangle(left, top, WIDTH * unit, HEIGHT * unit, blend(felt, WHITE, 0.5))
        thin = max(1.0, unit / 20)
        canvas.rectangle(left + thin, top + thin, WIDTH * unit - 2 * thin, HEIGHT * unit - 2 * thin, felt)
        for axis, side in enumerate(SIZE):
            for number in range(1, side):
                ends = [self.at((number, end) if axis == 0 else (end, number)) for end in (0, SIZE[1 - axis])]
                if c.grid:
                    canvas.line(ends[0], ends[1], max(1.0, unit / 24), blend(felt, WHITE, c.grid))
                for end, sign in zip(ends, (-1, 1)):
                    x, y = (end[0], end[1] + sign * unit) if axis == 0 else (end[0] + sign * unit, end[1])
                    if c.coordinates and sign < 0:
                        canvas.text(str(number), x, y, unit * 0.3, blend(wood, WHITE, 0.8))
                    else:
                        canvas.circle(x, y, unit * 0.09, blend(wood, WHITE, 0.7))

    def _paint_arrow(self, canvas: Canvas, ball: Spot, arrow: Spot, number: str) -> None:
        unit, length = self.unit, math.hypot(*arrow)
        (x, y), (tip_x, tip_y) = self.at(ball), self.at((ball[0] + arrow[0], ball[1] + arrow[1]))
        dx, dy = arrow[0] / length * unit, arrow[1] / length * unit
        base = tip_x - 0.6 * dx, tip_y - 0.6 * dy
        canvas.line((x, y), base, unit * 0.12, ARROW)
        canvas.polygon([(tip_x, tip_y), *((base[0] - s * dy, base[1] + s * dx) for s in (-0.24, 0.24))], ARROW)
        if number:
            x, y = self.label_at(ball, arrow)
            canvas.circle(x, y, unit * 0.45, HOLE)
            canvas.text(number, x, y, unit * self.config.number_size, WHITE)

    def label_at(self, ball: Spot, arrow: Spot) -> Point:
        """Middle of the number of an arrow, beyond its tip, in pixels."""
        x, y = self.at((ball[0] + arrow[0], ball[1] + arrow[1]))
        beyond = 0.6 * self.unit / math.hypot(*arrow)
        return x + arrow[0] * beyond, y + arrow[1] * beyond

    @property
    def unit(self) -> float:
        """Unit of the table in pixels."""
        return float(self.config.size / (WIDTH + 3.2))

    def at(self, spot: Spot) -> Point:
        """Place of a spot in pixels."""
        unit, middle = self.unit, self.config.size / 2
        return middle + (spot[0] - WIDTH / 2) * unit, middle + (spot[1] - HEIGHT / 2) * unit


# Geometry -------------------------------------------------------------------------------------------------------------


def _ways() -> tuple[Spot, ...]:
    """List the vectors from the ball to the tip of an arrow: the shortest of the right length in each direction."""
    vectors = [(x, y) for x in range(-5, 6) for y in range(-5, 6) if LENGTHS[0] <= math.hypot(x, y) <= LENGTHS[1]]
    ways: dict[Spot, Spot] = {}
    for x, y in sorted(vectors, key=lambda vector: math.hypot(*vector)):
        ways.setdefault((x // math.gcd(x, y), y // math.gcd(x, y)), (x, y))
    return tuple(ways.values())


WAYS = _ways()


def _is_inside(ball: Spot, way: Spot) -> bool:
    return all(2 <= at + step <= side - 2 for at, step, side in zip(ball, way, SIZE))


def _angle(way: Spot, other: Spot) -> float:
    """Return the angle between two directions in degrees."""
    return abs(math.degrees(math.remainder(math.atan2(way[1], way[0]) - math.atan2(other[1], other[0]), math.tau)))


def place_pockets(count: int, rng: np.random.Generator) -> tuple[Spot, ...]:
    """Place pockets at random, clockwise from the upper left corner, at least `BETWEEN` units apart."""
    border = [
        *((x, 0) for x in range(2, WIDTH - 1)),
        *((WIDTH, y) for y in range(2, HEIGHT - 1)),
        *((x, HEIGHT) for x in range(WIDTH - 2, 1, -1)),
        *((0, y) for y in range(HEIGHT - 2, 1, -1)),
    ]

    def attempt() -> tuple[Spot, ...] | None:
        chosen: list[int] = []
        for index in rng.permutation(len(border)).tolist():
            if len(chosen) < count and all(math.dist(border[index], border[other]) >= BETWEEN for other in chosen):
                chosen.append(index)
        return tuple(border[index] for index in sorted(chosen)) if len(chosen) == count else None

    return retry(attempt, ATTEMPTS, f"table with {count} pockets")


def _hits(ball: Spot, way: Spot, bounces: int) -> tuple[list[Spot], int]:
    """Return the points where a ball meets the cushions, one more than `bounces`, as if there were no pockets.

    In a plane tiled with mirror images of the table, the path is a straight line, which crosses lines x = k * WIDTH and
    y = k * HEIGHT; its points are then folded back. Points are whole numbers of parts of a unit, and the number of
    parts is returned, too.
    """
    parts = PARTS * math.lcm(*(abs(step) for step in way if step))
    times: list[int] = []
    for at, step, side in zip(ball, way, SIZE):
        if step:
            lines = [k + 1 if step > 0 else -k for k in range(bounces + 1)]
            times += [(line * side - at) * parts // step for line in lines]
    points = []
    for time in sorted(times)[: bounces + 1]:
        x, y = ((at * parts + step * time) % (2 * side * parts) for at, step, side in zip(ball, way, SIZE))
        points.append((min(x, 2 * WIDTH * parts - x), min(y, 2 * HEIGHT * parts - y)))
    return points, parts


def roll(ball: Spot, way: Spot, pockets: Sequence[Spot], bounces: int) -> tuple[int | None, int] | None:
    """Roll a ball until it meets a pocket or has bounced `bounces` times and meets a cushion again.

    Returns:
        Index of the pocket, None without one, and the number of bounces before it. None instead of both if the path
        comes too close to the edge of a pocket or to a corner to be clear.
    """
    points, parts = _hits(ball, way, bounces)
    radius, margin = POCKET * parts // PARTS, MARGIN * parts // PARTS
    for bounced, (x, y) in enumerate(points):
        if min(x, WIDTH * parts - x) < margin and min(y, HEIGHT * parts - y) < margin:
            return None
        for number, (pocket_x, pocket_y) in enumerate(pockets):
            distance = abs(x - pocket_x * parts) + abs(y - pocket_y * parts)
            if distance < radius + margin:  # on the same cushion, because pockets are farther from corners
                if distance > radius - margin:
                    return None
                return number, bounced
    return None, bounces
