"""Charts: read bars, lines, pies and dials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import ImageArray, pick, retry
from vlmgym.sandbox.core.task import LineState, LineTask, Question, TaskConfig
from vlmgym.sandbox.drawing.canvas import LOOKS, Canvas, Colour, Look, LookName, Point, blend
from vlmgym.sandbox.drawing.shapes import point_around

Chart = Literal["bar", "line", "pie", "dial"]
CHARTS: tuple[Chart, ...] = ("bar", "line", "pie", "dial")
LOOK_NAMES: tuple[LookName, ...] = ("plain", "paper", "slate")
NAMES = (
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug"),
    ("Date", "Fig", "Kiwi", "Lime", "Nut", "Pear", "Plum", "Yam"),
    ("Bern", "Cork", "Kiel", "Lima", "Nice", "Oslo", "Riga", "Rome"),
)
STEP = 5
"""All values are multiples of this."""
TOP = 100
"""Largest value."""
ATTEMPTS = 100_000

PROMPT_V1 = """\
The image shows {chart}. All values are multiples of {step}. {question}
Answer with {answers}.
{form}"""

SHOWN: Mapping[Chart, str] = {
    "bar": "a bar chart",
    "line": "a line chart",
    "pie": "a pie chart, with a mark on the rim every 5 percent, starting at the top; values are percentages",
    "dial": "dials from 0 to 100",
}


class ChartsConfig(TextConfig, TaskConfig):
    """Configuration of charts."""

    values: int = config_field("reasoning", [3, 4, 5, 6, 8], "Number of values.", ge=3, le=8)
    kinds: int = config_field(
        "reasoning",
        [2, 3, 4, 5, 5],
        "Number of kinds of questions, in this order: value, extreme, difference, count, sum.",
        ge=1,
        le=5,
    )
    ticks: Literal[5, 10, 20, 50] = config_field(
        "perception", [5, 10, 10, 20, 20], "Distance of the marks on scales other than pies'."
    )


@dataclass(frozen=True, kw_only=True)
class ChartsState(LineState):
    """Names and values in the order of the chart."""

    chart: Chart
    look: LookName
    names: tuple[str, ...]
    values: tuple[int, ...]


class Charts(LineTask[ChartsState]):
    """Answer a question about a bar chart, a line chart, a pie chart or dials.

    Description:
        Questions ask for a value, for the largest or smallest value, for the difference of two values, for the number
        of values above a threshold, or for the sum of the largest and the smallest value. All values are multiples of
        5, so every answer is exact. Only slices of pies may be equal, but never the largest or the smallest ones.

    Observation:
        An RGB image.

    Action:
        One line of text: a number, or a name in the chart.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metrics: `accuracy`, also for each kind of question.
    """

    name = "charts"
    skills = ("arithmetic", "perception")
    Config = ChartsConfig
    State = ChartsState
    prompt_template = PROMPT_V1
    perception_form = "the values, one line each in the order of the chart: its name and the value, comma-separated"
    answer = Line(
        "your answer",
        lambda config: ((*map(str, range(0, TOP + 1, STEP)), *(name for names in NAMES for name in names)), 1),
        longest=40,
    )

    def generate(self, rng: np.random.Generator) -> ChartsState:
        count, chart = self.config.values, pick(rng, CHARTS)
        known = pick(rng, NAMES)
        names = tuple(known[index] for index in sorted(rng.permutation(len(known))[:count].tolist()))
        values = _shares(rng, count) if chart == "pie" else _values(rng, count)
        kind = pick(rng, tuple(QUESTIONS)[: self.config.kinds])
        question = QUESTIONS[kind](rng, names, values)
        look = pick(rng, LOOK_NAMES)
        return ChartsState(kind=kind, **question._asdict(), chart=chart, look=look, names=names, values=values)

    def prompt(self, state: ChartsState) -> str:
        answers = "a name from the chart" if state.answer in state.names else "a number"
        return self.fill_prompt(chart=SHOWN[state.chart], question=state.question, answers=answers, step=STEP)

    def is_correct(self, state: ChartsState, action: str) -> bool:
        return super().is_correct(state, action.rstrip("% ") if state.chart == "pie" else action)

    def describe(self, state: ChartsState) -> str:
        return "\n".join(f"{name}, {value}" for name, value in zip(state.names, state.values))

    # Drawing --------------------------------------------------------------------------------------------------------

    def paint(self, state: ChartsState) -> list[ImageArray]:
        look = LOOKS[state.look]
        canvas = self.canvas(look.page)
        painters = (self._paint_bars, self._paint_line, self._paint_pie, self._paint_dials)
        painters[CHARTS.index(state.chart)](canvas, look, state)
        for name, (x, y) in name_places(state).items():
            canvas.text(name, x, y, TEXT * self.config.text, look.ink)
        return [canvas.pixels()]

    def _axes(self, canvas: Canvas, look: Look) -> None:
        ticks = self.config.ticks
        canvas.rectangle(LEFT, ABOVE, RIGHT - LEFT, BASE - ABOVE, look.panel)
        for value in range(0, TOP + 1, ticks):
            y = _height(value)
            canvas.rectangle(LEFT, y - 1, RIGHT - LEFT, 2, look.faint)
            if value % max(LABELLED, ticks) == 0:
                canvas.text(str(value), LEFT - 18, y, TEXT * self.config.text, look.ink, align="right")
        canvas.rectangle(LEFT, ABOVE, 3, BASE - ABOVE, look.ink)
        canvas.rectangle(LEFT, BASE - 1.5, RIGHT - LEFT, 3, look.ink)

    def _paint_bars(self, canvas: Canvas, look: Look, state: ChartsState) -> None:
        self._axes(canvas, look)
        width = 0.62 * (RIGHT - LEFT) / len(state.values)
        for index, value in enumerate(state.values):
            x, y, colour = _across(index, len(state.values)), _height(value), look.accents[index % len(look.accents)]
            canvas.rectangle(x - width / 2, y, width, BASE - y, colour)

    def _paint_line(self, canvas: Canvas, look: Look, state: ChartsState) -> None:
        colour = look.accents[1]
        self._axes(canvas, look)
        points = [(_across(index, len(state.values)), _height(value)) for index, value in enumerate(state.values)]
        for start, end in pairwise(points):
            canvas.line(start, end, 7, colour)
        for x, y in points:
            canvas.circle(x, y, 15, colour)
            canvas.circle(x, y, 8, look.panel)

    def _paint_pie(self, canvas: Canvas, look: Look, state: ChartsState) -> None:
        x, y = 500, PIE_MIDDLE
        for tick in range(0, 100, STEP):
            canvas.line(*_spoke(x, y, tick / 100, PIE + 8, PIE + 24), 4, look.ink)
        start = 0
        for value, colour in zip(state.values, _slices(look)):
            ring = [point_around(x, y, share / 400, PIE) for share in range(4 * start, 4 * (start + value) + 1)]
            canvas.polygon([(x, y), *ring], colour)
            start += value
        for share in np.cumsum(state.values).tolist():
            canvas.line((x, y), point_around(x, y, share / 100, PIE), 5, look.page)
        for (name_x, name_y), colour in zip(name_places(state).values(), _slices(look)):
            canvas.rectangle(name_x - 105, name_y - 20, 40, 40, colour, 8)

    def _paint_dials(self, canvas: Canvas, look: Look, state: ChartsState) -> None:
        ticks = self.config.ticks
        for index, value in enumerate(state.values):
            x, y = _dial(index, len(state.values))
            colour = look.accents[index % len(look.accents)]
            canvas.circle(x, y, DIAL, look.ink)
            canvas.circle(x, y, DIAL - 6, look.panel)
            for tick in range(0, TOP + 1, ticks):
                strong = tick % max(LABELLED, ticks) == 0
                spoke = _spoke(x, y, _turn(tick), DIAL - (32 if strong else 24), DIAL - 12)
                canvas.line(*spoke, 6 if strong else 3, look.ink)
                if strong:
                    place = point_around(x, y, _turn(tick), DIAL + 22)
                    canvas.text(str(tick), *place, 15 * self.config.text, look.ink)
            canvas.line(*_spoke(x, y, _turn(value), -18, DIAL - 20), 7, colour)
            canvas.circle(x, y, 13, colour)


LABELLED = 20
"""Minimum distance of the labels on a scale."""
TEXT = 22.5
"""Cap height of names and numbers in thousandths of the image's side, as all lengths below."""
LEFT, RIGHT, ABOVE, BASE = 125, 955, 70, 880
"""Edges of bar and line charts."""
PIE, PIE_MIDDLE = 320, 410
DIAL = 108


def name_places(state: ChartsState) -> dict[str, Point]:
    """Return the middle of each name."""
    count = len(state.values)
    places: list[Point]
    if state.chart == "pie":
        places = [(190 + 232 * (index % 4), 835 + 75 * (index // 4)) for index in range(count)]
    elif state.chart == "dial":
        places = [(x, y + 57) for x, y in (_dial(index, count) for index in range(count))]
    else:
        places = [(_across(index, count), BASE + 34) for index in range(count)]
    return dict(zip(state.names, places))


def _across(index: int, count: int) -> float:
    return LEFT + (RIGHT - LEFT) * (index + 0.5) / count


def _height(value: int) -> float:
    return BASE - (BASE - ABOVE - 30) * value / TOP


def _dial(index: int, count: int) -> tuple[float, float]:
    """Return the centre of a dial; rows have up to three."""
    row, column = divmod(index, 3)
    inside = min(3, count - 3 * row)
    rows = -(-count // 3)
    return 500 + (column - (inside - 1) / 2) * 305, 500 + (row - (rows - 1) / 2) * 305


def _turn(value: int) -> float:
    """Return the direction of a value on a dial, as a fraction of a turn clockwise from the top."""
    return -0.375 + 0.75 * value / TOP


def _spoke(x: float, y: float, turn: float, inner: float, outer: float) -> tuple[Point, Point]:
    """Return two points at distances from a centre, in a direction as a fraction of a turn clockwise from the top."""
    return point_around(x, y, turn, inner), point_around(x, y, turn, outer)


def _slices(look: Look) -> list[Colour]:
    """Return eight colours that can be told apart."""
    return [*look.accents, blend(look.ink, look.page, 0.35)]


# Values and questions -------------------------------------------------------------------------------------------------


def _values(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    """Draw different multiples of `STEP`."""
    return tuple(((rng.permutation(TOP // STEP)[:count] + 1) * STEP).tolist())


def _shares(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    """Draw multiples of `STEP` that add up to 100; only one is the largest, and only one the smallest."""

    def attempt() -> tuple[int, ...] | None:
        cuts = [0, *sorted((rng.permutation(TOP // STEP - 1)[: count - 1] + 1).tolist()), TOP // STEP]
        shares = [end - start for start, end in pairwise(cuts)]
        if shares.count(max(shares)) > 1 or shares.count(min(shares)) > 1:
            return None
        return tuple(share * STEP for share in shares)

    return retry(attempt, ATTEMPTS, f"pie of {count} slices")


def _value(rng: np.random.Generator, names: Sequence[str], values: Sequence[int]) -> Question:
    index = int(rng.integers(len(values)))
    name, value = names[index], values[index]
    return Question(f"What is the value of {name}?", str(value), f"{name} has the value {value}.")


def _extreme(rng: np.random.Generator, names: Sequence[str], values: Sequence[int]) -> Question:
    word, choose = pick(rng, (("largest", max), ("smallest", min)))
    name = names[values.index(choose(values))]
    reason = f"The values are {_listed(names, values)}; the {word} is {choose(values)}, of {name}."
    return Question(f"Which name has the {word} value?", name, reason)


def _difference(rng: np.random.Generator, names: Sequence[str], values: Sequence[int]) -> Question:
    low, high = sorted(rng.permutation(sorted({*values}))[:2].tolist())
    first, second = names[values.index(high)], names[values.index(low)]
    reason = f"{first} has {high} and {second} has {low}; {high} - {low} = {high - low}."
    return Question(f"How much larger is the value of {first} than that of {second}?", str(high - low), reason)


def _count(rng: np.random.Generator, names: Sequence[str], values: Sequence[int]) -> Question:
    limit = pick(rng, sorted(values)[:-1])
    larger = [(name, value) for name, value in zip(names, values) if value > limit]
    reason = f"Larger than {limit} are {_listed(*zip(*larger))}; these are {len(larger)}."
    return Question(f"How many values are larger than {limit}?", str(len(larger)), reason)


def _sum(rng: np.random.Generator, names: Sequence[str], values: Sequence[int]) -> Question:
    low, high = min(values), max(values)
    reason = f"The values are {_listed(names, values)}; {high} + {low} = {high + low}."
    return Question("What is the sum of the largest and the smallest value?", str(high + low), reason)


def _listed(names: Sequence[str], values: Sequence[int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values))


QUESTIONS: Mapping[str, Callable[[np.random.Generator, Sequence[str], Sequence[int]], Question]] = {
    "value": _value,
    "extreme": _extreme,
    "difference": _difference,
    "count": _count,
    "sum": _sum,
}
"""Question makers by kind, the easiest first."""
