"""Canary: read digits of this turn or of earlier turns, which only the images show."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np
from pydantic import NonNegativeInt

from vlmgym.errors import StateError
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.config import DegradedConfig, config_field
from vlmgym.sandbox.core.game import Game, ImageArray, Infos, Metrics, Step
from vlmgym.sandbox.core.task import VERBS
from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.degrade import degrade

DIGITS = 10
PAGE: Colour = (236, 231, 222)
INK: Colour = (38, 34, 30)

PROMPT_V1 = """\
{question} Answer with the digit.
{form}"""


class CanaryConfig(DegradedConfig):
    """Configuration of canary."""

    frames: int = config_field("reasoning", [1, 1, 1, 2, 2], "Images per turn, each with a digit.", ge=1, le=5)
    asked: int = config_field(
        "reasoning", [1, 1, 1, 1, 2], "Number of the image of a turn that is asked for, from 1.", ge=1, le=5
    )
    back: int = config_field(
        "reasoning", [0, 0, 1, 1, 2], "How many turns ago the image that is asked for was shown.", ge=0, le=8
    )
    turns: int = config_field("reasoning", [2, 4, 5, 7, 8], "Number of questions, one per turn.", ge=1, le=100)
    height: float = config_field(
        "perception",
        [0.5, 0.3, 0.2, 0.12, 0.08],
        "Height of the digits relative to that of the image.",
        ge=0.005,
        le=0.7,
    )

    def model_post_init(self, context: object) -> None:
        if self.asked > self.frames:
            raise ValueError(f"asked must be at most frames, got {self.asked} and {self.frames}")
        if (needed := self.frames * (self.back + 2)) > DIGITS:
            raise ValueError(f"frames x (back + 2) must be at most {DIGITS}, so that digits differ, got {needed}")


@dataclass(frozen=True, slots=True)
class CanaryState:
    """Digits of the last turns, up to `back` turns ago, oldest first, and the number of turns taken."""

    digits: tuple[tuple[int, ...], ...]
    turn: NonNegativeInt = 0


class Canary(Game[CanaryState, int]):
    """Read a digit in an image of this turn, or remember one of an earlier turn.

    Description:
        Every turn shows one or more images with a digit each; the digits of an episode change with every turn. The
        question and all other text are always the same, so a player who does not see the images guesses one of ten
        digits. It shows whether the right images arrive, in the right order, at the right turn.

    Observation:
        `frames` RGB images with a digit each. Prompts repeat the images of the last `back` turns.

    Action:
        `Discrete(10)`: the digit. In the first `back` turns, no image is old enough, and the answer is 0.

    Reward:
        1 / `turns` for each right answer, but 0 in the first `back` turns, so the score is at most 1.

    Episode end:
        All questions are answered, whether right, wrong or unparsable. Metrics: accuracy.
    """

    name = "canary"
    skills = ("perception", "memory")
    answer = Number(lambda config: range(DIGITS), verbs=VERBS)
    Config = CanaryConfig
    State = CanaryState
    prompt_template = PROMPT_V1
    perception_form = "the digits in the images of this turn, in order, separated by commas"
    invalid_keeps_state = False

    def __init__(self, config: CanaryConfig | None = None) -> None:
        super().__init__(config)
        self.history, self.images_per_state = self.config.back, self.config.frames

    def start(self, rng: np.random.Generator) -> CanaryState:
        return CanaryState((self._new_digits((), rng),))

    def legal_actions(self, state: CanaryState) -> tuple[int, ...]:
        return () if self.ended(state) is not None else tuple(range(DIGITS))

    def step(self, state: CanaryState, action: int, rng: np.random.Generator) -> Step[CanaryState]:
        self.answer.check(action)
        correct = self.asked_digit(state) == action
        return Step(self._next(state, rng), correct / self.config.turns, {"correct": correct})

    def on_invalid(self, state: CanaryState, rng: np.random.Generator) -> Step[CanaryState]:
        """Go on to the next turn, so that images of earlier turns are as old as the question says."""
        return Step(self._next(state, rng), self.illegal_reward)

    def _next(self, state: CanaryState, rng: np.random.Generator) -> CanaryState:
        digits = (*state.digits, self._new_digits(state.digits, rng))
        return CanaryState(digits[-1 - self.config.back :], state.turn + 1)

    def _new_digits(self, earlier: tuple[tuple[int, ...], ...], rng: np.random.Generator) -> tuple[int, ...]:
        """Draw digits that differ from each other and from those of the last turns."""
        fresh = sorted({*range(DIGITS)} - {digit for digits in earlier for digit in digits})
        return tuple(rng.choice(fresh, self.config.frames, replace=False).tolist())

    def asked_digit(self, state: CanaryState) -> int | None:
        """Return the digit that the question asks for; None in the first `back` turns."""
        return None if len(state.digits) <= self.config.back else state.digits[0][self.config.asked - 1]

    def ended(self, state: CanaryState) -> str | None:
        return "all questions are answered" if state.turn >= self.config.back + self.config.turns else None

    def best_action(self, state: CanaryState) -> int | None:
        if self.ended(state) is not None:
            return None
        return self.asked_digit(state) or 0

    def metrics(self, state: CanaryState, infos: Infos) -> Metrics:
        return {"accuracy": sum(info.get("correct", False) for info in infos) / self.config.turns}

    def draw(self, state: CanaryState) -> list[ImageArray]:
        seed = zlib.crc32(bytes(state.digits[-1]) + state.turn.to_bytes(4, "little"))
        images = [_paint(digit, self.config.size, self.config.height) for digit in state.digits[-1]]
        return [degrade(image.copy(), self.config, seed, index) for index, image in enumerate(images)]

    def describe(self, state: CanaryState) -> str:
        """Digits in the images of this turn, in order."""
        return ", ".join(map(str, state.digits[-1]))

    def prompt(self, state: CanaryState) -> str:
        return self.fill_prompt(question=self.question)

    @cached_property
    def question(self) -> str:
        """What the images show, and the question, which is the same in all states."""
        c = self.config
        shown = "The image shows a digit." if c.frames == 1 else f"Each of the {c.frames} images shows a digit."
        image = "the image" if c.frames == 1 else f"image {c.asked} of {c.frames}"
        if not c.back:
            return f"{shown} Which digit does {image} show?"
        ago, first = ("one turn", "turn") if c.back == 1 else (f"{c.back} turns", f"{c.back} turns")
        return f"{shown} Which digit did {image} show {ago} ago? In the first {first}, answer with 0."

    def explain(self, state: CanaryState, action: int) -> str:
        c = self.config
        if self.asked_digit(state) is None:
            return "No image is old enough."
        image = "The image" if c.frames == 1 else f"Image {c.asked}"
        return f"{image} shows {action}." if not c.back else f"{image} of {c.back} turns ago showed {action}."

    def check_state(self, state: CanaryState) -> None:
        turns, digits = min(state.turn, self.config.back) + 1, [*chain.from_iterable(state.digits)]
        if [len(shown) for shown in state.digits] != [self.config.frames] * turns:
            raise StateError(f"there must be {self.config.frames} digits for each of {turns} turns")
        if len({*digits}) < len(digits) or not {*digits} <= {*range(DIGITS)}:
            raise StateError(f"the digits must be different and 0 to {DIGITS - 1}")


@lru_cache(maxsize=DIGITS)
def _paint(digit: int, size: int, height: float) -> ImageArray:
    """Return an image of a digit, uint8 (size, size, 3); cached, because painting takes longer than copying."""
    image: ImageArray = np.empty((size, size, 3), np.uint8)
    image[:] = PAGE
    side = min(int(size * height * 1.4) + 4, size)
    start = (size - side) // 2
    canvas = Canvas(side, side, PAGE, left=start, top=start)
    canvas.text(str(digit), size / 2, size / 2, size * height, INK)
    image[start : start + side, start : start + side] = canvas.pixels()
    return image
