"""Tracking: follow moving balls over several images."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from vlmgym.sandbox.answers.choice import WAY, Number
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, retry
from vlmgym.sandbox.core.task import VERBS, ChoiceState, ChoiceTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import BLACK, COLOURS, WHITE, Canvas, Colour, blend

PAGE: Colour = (236, 231, 222)
LINE: Colour = (150, 142, 134)
INK: Colour = (252, 250, 246)

PROMPT_V1 = """\
The {frames} images show {choices} moving balls at successive times. From one image to the next, balls move so little \
that the ball nearest to an earlier position is the same ball. {question}
Answer with the number.
{form}"""

COUNT = "How many balls are on the other side of the vertical line in the last image than in the first?"
REDRAWS = 20
"""Maximum number of redraws to get a randomly chosen count; without redraws, few balls would change sides."""

FOLLOW = (
    "One ball is red in the first image; later it looks like the others. Which number does it have in the last image?"
)


class TrackingConfig(TaskConfig):
    """Configuration of tracking."""

    choices: int = config_field("reasoning", [2, 3, 4, 5, 6], "Number of balls.", ge=2, le=8)
    frames: int = config_field("reasoning", [2, 3, 4, 5, 6], "Number of images.", ge=2, le=12)
    speed: int = config_field(
        "reasoning",
        [200, 200, 200, 200, 240],
        "Maximum distance that a ball moves between two images, in thousandths of the image's side.",
        ge=50,
        le=400,
    )
    number_size: float = config_field(
        "perception",
        [1.0, 0.95, 0.9, 0.9, 0.9],
        "Height of the numbers relative to the radius of a ball.",
        ge=0.3,
        le=1.2,
    )
    counting: bool = config_field(
        "reasoning", [False, False, True, True, True], "Half of the questions ask how many balls have changed sides."
    )

    def model_post_init(self, context: object) -> None:
        if self.speed > (most := max(200, 480 - 40 * self.choices)):
            raise ValueError(f"{self.choices} balls can be followed at a speed of at most {most}, got {self.speed}")


@dataclass(frozen=True, kw_only=True)
class TrackingState(ChoiceState):
    """Ball positions in each frame, and ball numbers in the last frame; questions of kind `follow` mark ball 0."""

    kind: Literal["follow", "count"]
    path: tuple[Frame, ...]
    numbers: tuple[int, ...]


class Tracking(ChoiceTask[TrackingState]):
    """Follow identical balls across several images.

    Description:
        Identical balls move between images. A ball is always closer to its own previous position than to the previous
        position of any other ball, so it can be followed from one image to the next. One kind of question marks a ball
        in the first image and asks for its number in the last image; the other asks how many balls are on different
        sides of a vertical line in the first and the last image.

    Observation:
        `frames` RGB images, oldest first.

    Action:
        `Discrete(choices + 1)`: the number of a ball, from 1, or a count, from 0.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metric: accuracy.
    """

    name = "tracking"
    statements = re.compile(
        rf"The red ball moves {WAY}(?:, {WAY}){{0,30}} and has number \d{{1,2}} at the end\."
        r"|The balls were (?:left|right)(?:, (?:left|right)){0,30}; \d{1,2} of them are on the other side at the end\."
    )
    skills = ("memory", "perception")
    answer = Number(lambda config: range(config.choices + 1), verbs=VERBS)
    Config = TrackingConfig
    State = TrackingState
    prompt_template = PROMPT_V1
    no_text_observation = "its text description does not say which ball is which"
    perception_form = (
        "number of balls in the left and in the right half of each image, comma-separated, one line per image"
    )

    @property
    def images_per_state(self) -> int:  # type: ignore[override]
        return int(self.config.frames)

    def accepted(self, state: TrackingState) -> range:
        return range(1 if state.kind == "follow" else 0, self.config.choices + 1)

    def generate(self, rng: np.random.Generator) -> TrackingState:
        c = self.config
        path = make_paths(rng, c.choices, c.frames, c.speed)
        counting, wanted = c.counting and rng.random() < 0.5, int(rng.integers(c.choices + 1))
        for _ in range(REDRAWS if counting else 0):
            if _changed(path) == wanted:
                break
            path = make_paths(rng, c.choices, c.frames, c.speed)
        numbers = tuple(int(number) + 1 for number in rng.permutation(c.choices))
        if counting:
            return TrackingState(kind="count", path=path, numbers=numbers, answer=_changed(path))
        return TrackingState(kind="follow", path=path, numbers=numbers, answer=numbers[0])

    def paint(self, state: TrackingState) -> list[ImageArray]:
        return [self._paint_frame(state, index) for index in range(len(state.path))]

    def _paint_frame(self, state: TrackingState, index: int) -> ImageArray:
        unit, last = self.config.size / 1000, len(state.path) - 1
        frame: ImageArray = self._background.copy()
        for ball, (x, y) in enumerate(state.path[index]):
            marked = ball == 0 and index == 0 and state.kind == "follow"
            left, top = int((x - RADIUS) * unit) - 1, int((y - RADIUS) * unit) - 1
            side = int(2 * RADIUS * unit) + 4
            canvas = Canvas(side, side, PAGE, left=left, top=top, unit=unit)  # a small canvas is fast
            canvas.rectangle(*MIDDLE_LINE, LINE)
            colour = COLOURS["red" if marked else "blue"]
            canvas.circle(x, y, RADIUS, blend(colour, BLACK, 0.35))
            canvas.circle(x - 0.06 * RADIUS, y - 0.06 * RADIUS, 0.9 * RADIUS, colour)
            if index == last:
                canvas.text(str(state.numbers[ball]), x, y, RADIUS * self.config.number_size, INK)
            else:
                canvas.circle(x - 0.4 * RADIUS, y - 0.4 * RADIUS, 0.18 * RADIUS, WHITE)
            frame[top : top + side, left : left + side] = canvas.pixels()
        return frame

    @cached_property
    def _background(self) -> ImageArray:
        canvas = self.canvas(PAGE)
        canvas.rectangle(*MIDDLE_LINE, LINE)
        return canvas.pixels()

    def describe(self, state: TrackingState) -> str:
        """Number of balls in the left and in the right half of each image, one line per image."""
        lefts = [sum(x < 500 for x, _ in frame) for frame in state.path]
        return "\n".join(f"{left}, {self.config.choices - left}" for left in lefts)

    def prompt(self, state: TrackingState) -> str:
        return self.fill_prompt(question=FOLLOW if state.kind == "follow" else COUNT)

    def explain(self, state: TrackingState, action: int) -> str:
        if state.kind == "count":
            sides = ["left" if x < 500 else "right" for x, _ in state.path[0]]
            return (
                f"The balls were {', '.join(sides)}; {_changed(state.path)} of them are on the other side at the end."
            )
        return f"The red ball moves {_steps(state.path)} and has number {state.numbers[0]} at the end."


def _changed(path: Sequence[Frame]) -> int:
    """Number of balls that are on different sides of the line in the first and the last frame."""
    return sum((start[0] < 500) != (end[0] < 500) for start, end in zip(path[0], path[-1]))


def _steps(path: Sequence[Frame]) -> str:
    """Movement of ball 0 in words, such as `right, down`."""
    words = []
    for (x0, y0), (x1, y1) in pairwise(frame[0] for frame in path):
        if abs(x1 - x0) >= abs(y1 - y0):
            words.append("right" if x1 > x0 else "left")
        else:
            words.append("down" if y1 > y0 else "up")
    return ", ".join(words)


# Motion ---------------------------------------------------------------------------------------------------------------
#
# Paths of balls that can be followed from frame to frame. Lengths are in thousandths of the image's side.

Point = tuple[int, int]
"""x and y of a ball's centre."""
Frame = tuple[Point, ...]

MIDDLE_LINE = 497, 0, 6, 1000
"""Left, top, width and height of the vertical line."""
RADIUS = 50
BORDER = 90
"""Minimum distance of a ball's centre from the edges."""
APART = 150
"""Minimum distance between two centres."""
FROM_LINE = 30
"""Minimum distance of a centre from the vertical line in the middle, so that the ball's side is clear."""
CLEARER = 1.5
"""Minimum ratio of two distances from a ball's new position: to any other ball's previous position, and to its own."""
SLOWEST = 0.7
"""Minimum speed relative to the maximum.

Because CLEARER x SLOWEST > 1, the ball nearest to any previous position is always the ball that was there.
"""
TRIES, RESTARTS = 200, 2000


def make_paths(rng: np.random.Generator, balls: int, frames: int, speed: int) -> tuple[Frame, ...]:
    """Place balls at random and move them, each by at most `speed` per frame; return the frames."""

    def attempt() -> tuple[Frame, ...] | None:
        path: list[Frame] = []
        while len(path) < frames:
            placed = _place(rng, balls, path[-1] if path else None, speed)
            if placed is None:
                return None
            path.append(placed)
        return tuple(path)

    return retry(attempt, RESTARTS, f"path of {balls} balls over {frames} frames")


def _free(point: Point, others: Frame) -> bool:
    inside = all(BORDER <= v <= 1000 - BORDER for v in point)
    return inside and abs(point[0] - 500) >= FROM_LINE and all(math.dist(point, other) >= APART for other in others)


def _place(rng: np.random.Generator, balls: int, before: Frame | None, speed: int) -> Frame | None:
    placed: Frame = ()
    slowest = SLOWEST * speed
    for ball in range(balls):
        others = [] if before is None else [*before[:ball], *before[ball + 1 :]]
        for _ in range(TRIES):
            if before is None:
                point = int(rng.integers(BORDER, 1001 - BORDER)), int(rng.integers(BORDER, 1001 - BORDER))
            else:
                # As `rng.uniform`, which takes five times as long.
                angle, length = math.tau * rng.random(), slowest + (speed - slowest) * rng.random()
                x, y = before[ball]
                point = round(x + length * math.cos(angle)), round(y + length * math.sin(angle))
                least = CLEARER * math.dist(point, before[ball])
                if any(math.dist(point, other) < least for other in others):
                    continue
            if _free(point, placed):
                placed = (*placed, point)
                break
        else:
            return None
    return placed
