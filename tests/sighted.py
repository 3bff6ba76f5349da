"""A model that reads the digits of canary, behind a path that may be faulty."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np

from benchmarks.faulty_path import FaultyPath, images_of, messages_of
from tests.api_server import Answer, Request, as_json, completion, refusal
from vlmgym import make_game
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.games.canary import DIGITS, CanaryState

SIDE = 32
"""Side of a digit when it is compared, in pixels."""


@cache
def templates() -> list[np.ndarray[Any, Any]]:
    game = make_game("canary", 1, 1, size=256, frames=1, height=0.5)
    return [glyph(game.images(CanaryState(((digit,),)))[0]) for digit in range(DIGITS)]


def glyph(image: ImageArray) -> np.ndarray[Any, Any]:
    """Cut out the dark part of an image, as float32 (SIDE, SIDE) in 0 to 1; empty if there is none."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    rows, columns = np.where(grey < 130)
    if len(rows) == 0 or cv2.meanStdDev(grey)[1].item() < 1:
        return np.zeros((0, 0))
    part = grey[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].astype(np.float32) / 255
    return np.asarray(cv2.resize(part, (SIDE, SIDE), interpolation=cv2.INTER_AREA))


def read_digit(image: ImageArray) -> int | None:
    """Return the most similar digit; None if there is none."""
    shown = glyph(image)
    if not shown.size:
        return None
    distances = [float(np.abs(shown - template).mean()) for template in templates()]
    return int(np.argmin(distances)) if min(distances) < 0.25 else None


Turns = Sequence[Sequence[ImageArray]]
"""Images of each turn."""


def answer_digit(turns: Turns, text: str, read: Callable[[ImageArray], int | None] = read_digit) -> int:
    """Answer the question of a text from the images of each turn, or from words; 0 if nothing can be read."""
    if written := re.search(r"this text shows the current state:\n(\d)", text):
        return int(written[1])
    back = int("one turn ago" in text)
    if len(turns) <= back:
        return 0
    shown = turns[-1 - back] or turns[-1]  # the current image if the earlier one is missing
    number = re.search(r"image (\d) of", text)
    index = min(int(number[1]), len(shown)) - 1 if number else -1
    return (read(shown[index]) if shown else None) or 0


@dataclass
class Model:
    """Behaviour of a server.

    Attributes:
        fault: Name of the fault; empty for none.
        reads: Whether the model reads digits in images, and not only in words.
        logprobs: Whether the server reports log-probabilities.
        looks_at: Picks the images that the model looks at, from those of each turn.
    """

    fault: str = ""
    reads: bool = True
    logprobs: bool = False
    looks_at: Callable[[Turns], Turns] = lambda turns: turns

    def __post_init__(self) -> None:
        self.path = FaultyPath(self.fault)

    def __call__(self, request: Request) -> Answer:
        if self.path.is_rejected(request.body):
            return refusal(400, "at most 1 image may be provided in one prompt")
        body = self.path.change(request.body, request.at_once)
        images, messages = images_of(body), messages_of(body)
        rest = iter(images)
        turns = [
            [next(rest) for part in parts if part["type"] == "image_url"] for role, parts in messages if role == "user"
        ]
        text = "\n".join(part["text"] for _, parts in messages for part in parts if part["type"] == "text")
        shown = self.looks_at(turns) if images else turns
        digit = answer_digit(shown, text, read_digit if self.reads else lambda image: 7)
        if (key := self.path.cache_key(request.body)) is not None:
            digit = self.path.responses.setdefault(key, digit)
        answer = json.loads(completion(f"<answer>{digit}</answer>").body)
        tokens = len(text) // 4 + sum(image.size for image in images) // 3 // 1024
        answer["usage"] = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
        if self.logprobs and request.body.get("logprobs"):
            value = -1.0 - sum(index * float(image.mean()) for index, image in enumerate(images, 1)) / 1e4
            answer["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": value}]}
        return as_json(answer, delay=0.002)
