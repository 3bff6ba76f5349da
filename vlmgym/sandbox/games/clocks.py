"""Clocks: read analogue clocks and calculate with times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.task import LineState, LineTask, Question, TaskConfig, normalised
from vlmgym.sandbox.drawing.canvas import BLACK, LOOKS, Canvas, Colour, LookName, Point, blend
from vlmgym.sandbox.drawing.shapes import paint_plate, point_around

Face = Literal["round", "square", "rim"]
FACES: tuple[Face, ...] = ("round", "square", "rim")
LOOK_NAMES: tuple[LookName, ...] = ("paper", "plain", "slate", "blueprint")
ROMAN = ("XII", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI")
HALF_DAY = 12 * 60
"""Minutes."""

PROMPT_V1 = """\
The image shows {clocks}. All times are between 12:00 noon and midnight of one day; the short hand points at the hour. \
{question}
Answer with {answers}.
{form}"""


class ClocksConfig(TextConfig, TaskConfig):
    """Configuration of clocks."""

    clocks: int = config_field("reasoning", [1, 1, 2, 3, 4], "Number of clocks.", ge=1, le=4)
    durations: bool = config_field(
        "reasoning", [False, True, True, True, True], "Ask for a time before or after the one on a clock."
    )
    precision: Literal[1, 5, 15, 30] = config_field(
        "perception", [15, 5, 5, 1, 1], "All times are multiples of this many minutes."
    )
    numerals: Literal["arabic", "roman", "quarters", "none"] = config_field(
        "perception", ["arabic", "arabic", "roman", "quarters", "none"], "Numerals on the faces."
    )


@dataclass(frozen=True, kw_only=True)
class ClocksState(LineState):
    """Times in minutes after 12:00, with the name, the look and the face of each clock."""

    times: tuple[int, ...]
    names: tuple[str, ...]
    looks: tuple[LookName, ...]
    faces: tuple[Face, ...]


class Clocks(LineTask[ClocksState]):
    """Read analogue clocks.

    Description:
        With one clock, questions ask for the time, or for a time some minutes earlier or later. With several, they ask
        for the minutes between two of them, or, relative to the one that shows the earliest or the latest time, for
        this time or another one. Clocks differ in face, numerals and colours.

    Observation:
        An RGB image.

    Action:
        One line of text: a time such as 3:05, or a number of minutes.

    Reward:
        1 if correct; 0 if wrong or unparsable. Times may have a leading zero, `pm`, or hours from 12 to 23.

    Episode end:
        After one turn. Metrics: `accuracy`, also for each kind of question.
    """

    name = "clocks"
    skills = ("arithmetic", "perception")
    Config = ClocksConfig
    State = ClocksState
    prompt_template = PROMPT_V1
    perception_form = "the clocks, one line each in alphabetical order: the letter and the time, such as A, 3:05"
    answer = Line(
        "your answer",
        lambda config: (tuple(written(time) for time in range(0, HALF_DAY, config.precision)), 1),
        longest=20,
    )

    def generate(self, rng: np.random.Generator) -> ClocksState | None:
        c = self.config
        times = tuple((rng.permutation(HALF_DAY // c.precision)[: c.clocks] * c.precision).tolist())
        shift = c.precision * int(rng.integers(1, 170 // c.precision)) if c.durations else 0
        sign, late = pick(rng, (-1, 1)), bool(rng.integers(2))
        names = tuple(sorted(LETTERS[i] for i in rng.permutation(len(LETTERS))[: c.clocks]))
        if c.clocks > 1 and rng.random() < 0.5:
            first, second = sorted(rng.permutation(c.clocks)[:2].tolist(), key=lambda i: times[i])
            asked = _between((names[first], times[first]), (names[second], times[second]), shift)
        else:
            asked = _moment(times, late, sign, shift)
        if asked is None:
            return None
        kind, question = asked
        shown = ", ".join(f"{name} {written(time)}" for name, time in zip(names, times))
        return ClocksState(
            kind=kind,
            question=question.question,
            answer=question.answer,
            reason=f"The clocks show {shown}. {question.reason}".strip(),
            times=times,
            names=names,
            looks=tuple(pick(rng, LOOK_NAMES) for _ in times),
            faces=tuple(pick(rng, FACES) for _ in times),
        )

    def is_correct(self, state: ClocksState, action: str) -> bool:
        answer = normalised(action)
        if state.kind == "between":
            return re.sub(r" ?(minutes|min)$", "", answer) == state.answer
        match = re.fullmatch(r"(\d{1,2})[:.](\d\d)( ?p\.?m)?", answer)
        return match is not None and int(match[1]) < 24 and written(60 * int(match[1]) + int(match[2])) == state.answer

    def prompt(self, state: ClocksState) -> str:
        count = len(state.times)
        clocks = "a clock with a letter below it" if count == 1 else f"{count} clocks with letters below them"
        answers = "a number" if state.kind == "between" else "a time, such as 3:05"
        return self.fill_prompt(clocks=clocks, question=state.question, answers=answers)

    def describe(self, state: ClocksState) -> str:
        return "\n".join(f"{name}, {written(time)}" for name, time in zip(state.names, state.times))

    # Drawing --------------------------------------------------------------------------------------------------------

    def paint(self, state: ClocksState) -> list[ImageArray]:
        size = self.config.size
        canvas = Canvas(size, size, WALL)
        for stripe in range(0, size, max(4, size // 12)):  # wallpaper
            canvas.rectangle(0, stripe, size, max(2, size // 24), STRIPE)
        for index, (x, y, radius) in enumerate(layout(len(state.times), size)):
            self._paint_clock(canvas, state, index, x, y, radius)
        return [canvas.pixels()]

    def _paint_clock(self, canvas: Canvas, state: ClocksState, index: int, x: float, y: float, radius: float) -> None:
        look, face, time = LOOKS[state.looks[index]], state.faces[index], state.times[index]
        shadow = blend(WALL, BLACK, 0.25)
        rim = look.accents[(index + time) % len(look.accents)] if face == "rim" else look.ink
        for dx, colour, reach in ((0.04, shadow, 1.0), (0, rim, 1.0), (0, look.panel, 0.93 if face != "rim" else 0.86)):
            side = reach * radius
            if face == "square":
                canvas.rectangle(x - side, y - side + dx * radius, 2 * side, 2 * side, colour, 0.16 * radius)
            else:
                canvas.circle(x + dx * radius / 2, y + dx * radius, side, colour)
        edge = 0.82 if face == "rim" else 0.88
        for tick in range(60):
            strong = tick % 5 == 0
            if self.config.numerals == "none" and not strong:
                continue
            start, end = (
                point_around(x, y, tick / 60, share * radius) for share in (edge - (0.09 if strong else 0.04), edge)
            )
            canvas.line(start, end, radius * (0.03 if strong else 0.012), look.ink)
        for hour in self._numbered:
            text = ROMAN[hour] if self.config.numerals == "roman" else str(hour or 12)
            px, py = point_around(x, y, hour / 12, (edge - 0.22) * radius)
            canvas.text(text, px, py, 0.1 * self.config.text * radius, look.ink, max_width=0.3 * radius)
        hand = blend(look.ink, look.accents[0], 0.0 if face == "round" else 0.25)
        _hand(canvas, x, y, time / HALF_DAY, 0.5 * radius, 0.075 * radius, hand)
        _hand(canvas, x, y, time % 60 / 60, 0.78 * radius, 0.045 * radius, hand)
        canvas.circle(x, y, 0.06 * radius, look.accents[0])
        unit, (left, top) = self.config.size / 1000, plate_at(x, y, radius)
        paint_plate(
            canvas, state.names[index], left, top, 90 * unit, 52 * unit, 28 * self.config.text * unit, 10 * unit
        )

    @property
    def _numbered(self) -> range:
        """Hours with numerals."""
        return {"none": range(0), "quarters": range(0, 12, 3)}.get(self.config.numerals, range(12))


LETTERS = "ABCDEFGH"
"""Possible names of clocks."""
WALL: Colour = (214, 222, 214)
STRIPE: Colour = (206, 215, 207)


def written(time: int) -> str:
    """Write a time, in minutes after 12:00, such as `3:05`; 0 is `12:00`."""
    hour, minute = divmod(time % HALF_DAY, 60)
    return f"{hour or 12}:{minute:02}"


def _between(first: tuple[str, int], second: tuple[str, int], shift: int) -> tuple[str, Question] | None:
    """Ask for the minutes from one clock to another, or to some minutes later; None if that is after midnight."""
    (name, start), (other, time) = first, second
    if time + shift >= HALF_DAY:
        return None
    question = f"How many minutes pass from the time on clock {name} to {_relative(shift, 1)}the time on clock {other}?"
    end, minutes = written(time + shift), time - start + shift
    moved = f"{_relative(shift, 1)}{written(time)} it is {end}. " if shift else ""
    reason = f"{moved}From {written(start)} to {end}, {minutes} minutes pass."
    return "between", Question(question, str(minutes), reason)


def _moment(times: Sequence[int], late: bool, sign: int, shift: int) -> tuple[str, Question] | None:
    """Ask for the earliest or latest time, or some minutes before or after it; None if that is on another half day."""
    base, several = max(times) if late else min(times), len(times) > 1
    if not 0 <= base + sign * shift < HALF_DAY:
        return None
    kind = ("latest" if late else "earliest") if several else "time"
    clock = f"the clock with the {kind} time" if several else "the clock"
    answer, relative = written(base + sign * shift), _relative(shift, sign)
    question = f"What time is it {relative}the time on {clock}?" if shift else f"What is the time on {clock}?"
    reason = f"The {kind} is {written(base)}. " if several else ""
    reason += f"{relative}{written(base)} it is {answer}." if shift else ""
    return kind, Question(question, answer, reason.strip())


def _relative(shift: int, sign: int) -> str:
    return f"{shift} minutes {'after' if sign > 0 else 'before'} " if shift else ""


def layout(count: int, size: int) -> list[tuple[float, float, float]]:
    """Return centre and radius of each clock in pixels."""
    if count == 1:
        return [(0.5 * size, 0.46 * size, 0.38 * size)]
    places = ((0.26, 0.24), (0.74, 0.24), (0.26, 0.7), (0.74, 0.7))
    if count == 2:
        places = ((0.27, 0.46), (0.73, 0.46), *places[2:])
    return [(x * size, y * size, 0.185 * size) for x, y in places[:count]]


def plate_at(x: float, y: float, radius: float) -> Point:
    """Return the centre of the plate with the letter below a clock, a whole pixel."""
    return round(x), round(y + 1.2 * radius)


def _hand(canvas: Canvas, x: float, y: float, turn: float, length: float, width: float, colour: Colour) -> None:
    tail, tip = point_around(x, y, turn, -0.2 * length), point_around(x, y, turn, 0.88 * length)
    canvas.line(tail, tip, width, colour)
    left, right = (point_around(*tip, turn + side, 0.5 * width) for side in (-0.25, 0.25))
    canvas.polygon([left, point_around(x, y, turn, length), right], colour)
