"""A server that reads the digits of canary in the images that it gets, and faults on the way to it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import cv2
import numpy as np
from PIL import Image

from tests.api_server import Answer, Request, as_json, completion, refusal
from vlmgym import make_game
from vlmgym.sandbox.games.canary import DIGITS, CanaryState

Pixels = np.ndarray[Any, Any]
SIDE = 32
"""Side of a digit as it is compared, in pixels."""


@cache
def templates() -> list[Pixels]:
    game = make_game("canary", 1, 1, size=256, images=1, height=0.5)
    return [glyph(game.images(CanaryState(((digit,),)))[0]) for digit in range(DIGITS)]


def glyph(image: Pixels) -> Pixels:
    """Cut out the dark part of an image, as float32 (SIDE, SIDE) in 0 to 1; empty if there is none."""
    grey = image.mean(2)
    rows, columns = np.where(grey < 130)
    if len(rows) == 0 or grey.std() < 1:
        return np.zeros((0, 0))
    part = grey[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].astype(np.float32) / 255
    return np.asarray(cv2.resize(part, (SIDE, SIDE), interpolation=cv2.INTER_AREA))


def read_digit(image: Pixels) -> int | None:
    seen = glyph(image)
    if not seen.size:
        return None
    distances = [float(np.abs(seen - template).mean()) for template in templates()]
    return int(np.argmin(distances)) if min(distances) < 0.25 else None


@dataclass
class Seen:
    """A request as it arrives at the model: the images, decoded, and the text of each message."""

    images: list[list[Pixels]]
    texts: list[str]
    roles: list[str]

    @classmethod
    def of(cls, body: dict[str, Any]) -> Seen:
        seen = cls([], [], [])
        for message in body["messages"]:
            content: Any = message["content"]
            parts: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
            urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
            files = [base64.b64decode(url.partition("base64,")[2]) for url in urls]
            seen.images.append([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])
            seen.texts.append("\n".join(part["text"] for part in parts if part["type"] == "text"))
            seen.roles.append(message["role"])
        return seen

    @property
    def all_images(self) -> list[Pixels]:
        return [image for images in self.images for image in images]

    def with_images(self, images: list[Pixels]) -> Seen:
        """Fill the places of the images in order."""
        rest = iter(images)
        return replace(self, images=[[next(rest) for _ in shown] for shown in self.images])


def answer_digit(seen: Seen, read: Callable[[Pixels], int | None] = read_digit) -> int:
    """Answer the question of a request from its images, or from words; 0 if nothing can be read."""
    text = "\n".join(seen.texts)
    if written := re.search(r"this text shows the current state:\n(\d)", text):
        return int(written[1])
    turns = [images for images, role in zip(seen.images, seen.roles) if role == "user"]
    back = int("one turn ago" in text)
    if len(turns) <= back:
        return 0
    shown = turns[-1 - back] or turns[-1]  # the current image if the earlier one is missing
    number = re.search(r"image (\d) of", text)
    return (read(shown[int(number[1]) - 1 if number else -1]) if shown else None) or 0


@dataclass
class Model:
    """Behaviour of a server whose model reads digits, behind a fault.

    Attributes:
        fault: Name of the fault; empty for none.
        reads: Whether the model reads digits in images, and not only in words.
        logprobs: Whether the server reports log-probabilities.
    """

    fault: str = ""
    reads: bool = True
    logprobs: bool = False
    responses: dict[str, int] = field(default_factory=dict)
    before: list[Pixels] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer:
        if self.fault == "rejected" and len(request.images) > 1:
            return refusal(400, "at most 1 image may be provided in one prompt")
        seen = self.distort(Seen.of(request.body), request)
        digit = answer_digit(seen, read_digit if self.reads else lambda image: 7)
        if self.fault == "cached":
            digit = self.responses.setdefault(json.dumps(seen.texts), digit)
        answer = json.loads(completion(f"<answer>{digit}</answer>").body)
        tokens = sum(map(len, seen.texts)) // 4 + sum(image.size for image in seen.all_images) // 3 // 1024
        answer["usage"] = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
        if self.logprobs and request.body.get("logprobs"):
            value = -1.0 - sum(float(image.mean()) for image in seen.all_images) / 1e4
            answer["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": value}]}
        return as_json(answer, delay=0.005)

    def distort(self, seen: Seen, request: Request) -> Seen:
        """Lose or mix up images on their way."""
        images, conversation = seen.all_images, len(seen.images) > 1
        match self.fault:
            case "dropped":
                return replace(seen, images=[[] for _ in seen.images])
            case "grey":
                return seen.with_images([np.full_like(image, 128) for image in images])
            case "jpeg" if any("image/jpeg" in url["url"] for url in request.images):
                return seen.with_images([np.full_like(image, 128) for image in images])
            case "late":
                before, self.before = self.before or images, images
                return seen.with_images((before * len(images))[: len(images)])
            case "mixed" if request.at_once > 1:
                before, self.before = self.before or images, images
                return seen.with_images((before * len(images))[: len(images)])
            case "reversed":
                return seen.with_images(images[::-1])
            case "first only" if not conversation:
                return seen.with_images(images[:1] * len(images))
            case "last only" if not conversation:
                return seen.with_images(images[-1:] * len(images))
            case "first kept" if conversation:
                return seen.with_images(images[:1] * len(images))
            case "turn late" if conversation:
                return seen.with_images([images[0], *images[:-1]])
            case "past lost" if conversation:
                last = max(index for index, shown in enumerate(seen.images) if shown)
                return replace(seen, images=[shown if i == last else [] for i, shown in enumerate(seen.images)])
            case "downsized":
                return seen.with_images([shrunk(image, 256) for image in images])
        return seen


def shrunk(image: Pixels, side: int) -> Pixels:
    if image.shape[0] <= side:
        return image
    return np.asarray(cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA))
