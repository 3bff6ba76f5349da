"""Faults on the way to a model: images of requests that are dropped, mixed up or spoiled.

`serving` puts one in front of an OpenAI-compatible server, and `vlmgym check-vision` has to name it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import aiohttp
import cv2
import numpy as np
from aiohttp import web
from PIL import Image

from vlmgym.evaluation.vision import FAULTS
from vlmgym.policies.openai.policy import image_url
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import blank

SMALL = 384
"""Side to which the fault `downsized` reduces images, in pixels."""
INJECTED = tuple(fault for fault in FAULTS if fault != "leak")
"""Faults that a path can have; a leak is a fault of the model or of its policy."""


@dataclass
class FaultyPath:
    """Changes the bodies of chat completion requests.

    Attributes:
        fault: Name of the fault in `FAULTS`, or `grey`; empty for none.
        responses: Responses by text, for the fault `cached`.
    """

    fault: str = ""
    responses: dict[str, Any] = field(default_factory=dict)
    _before: list[ImageArray] = field(default_factory=list)

    def is_rejected(self, body: dict[str, Any]) -> bool:
        """Return whether the path rejects a request."""
        return self.fault == "rejected" and len(images_of(body)) > 1

    def cache_key(self, body: dict[str, Any]) -> str | None:
        """Return the key of a request in a cache that ignores images; None without this fault."""
        texts = [[part["text"] for part in parts if "text" in part] for _, parts in messages_of(body)]
        return json.dumps(texts) if self.fault == "cached" else None

    def change(self, body: dict[str, Any], at_once: int) -> dict[str, Any]:
        """Return the body as the model gets it; `at_once` is the number of concurrent requests."""
        images, turns = images_of(body), [role for role, _ in messages_of(body)].count("user")
        replaced = self.replaced_images(images, at_once, turns)
        if replaced is None:
            return body
        urls, messages = iter([image_url(image) if image is not None else None for image in replaced]), []
        for role, parts in messages_of(body):
            content = []
            for part in parts:
                if part["type"] == "text":
                    content.append(part)
                elif (url := next(urls)) is not None:
                    content.append({"type": "image_url", "image_url": {"url": url}})
            is_text = [part["type"] for part in content] == ["text"]
            messages.append({"role": role, "content": content[0]["text"] if is_text else content})
        return {**body, "messages": messages}

    def replaced_images(self, images: list[ImageArray], at_once: int, turns: int) -> Sequence[ImageArray | None] | None:
        """Return the images that replace those of a request, None for a missing one; None if nothing changes."""
        count = len(images)
        match self.fault:
            case "dropped":
                return [None] * count
            case "grey":
                return [*map(blank, images)]
            case "late" | "mixed" if self.fault == "late" or at_once > 1:
                before, self._before = self._before or images, images
                return (before * count)[:count]
            case "reversed":
                return images[::-1]
            case "first only" if turns == 1:
                return [*images[:1], *[None] * (count - 1)]
            case "last only" if turns == 1:
                return [*[None] * (count - 1), *images[-1:]]
            case "first kept" if turns > 1:
                return images[:1] * count
            case "turn late" if turns > 1:
                return [images[0], *images[:-1]]
            case "past lost" if turns > 1:
                return [*[None] * (count - 1), images[-1]]
            case "downsized":
                return [shrunk(image) for image in images]
        return None


def messages_of(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the role and the parts of each message."""
    messages = []
    for message in body["messages"]:
        content = message["content"]
        messages.append((message["role"], [{"type": "text", "text": content}] if isinstance(content, str) else content))
    return messages


def images_of(body: dict[str, Any]) -> list[ImageArray]:
    """Decode the images of a request, in order."""
    urls = [part["image_url"]["url"] for _, parts in messages_of(body) for part in parts if part["type"] == "image_url"]
    return [*map(_decode, urls)]


@lru_cache(maxsize=16)
def _decode(url: str) -> ImageArray:
    file = io.BytesIO(base64.b64decode(url.partition("base64,")[2]))
    return np.asarray(Image.open(file).convert("RGB"))


def shrunk(image: ImageArray) -> ImageArray:
    """Reduce an image to at most `SMALL` pixels."""
    if image.shape[0] <= SMALL:
        return image
    return np.asarray(cv2.resize(image, (SMALL, SMALL), interpolation=cv2.INTER_AREA), np.uint8)


@asynccontextmanager
async def serving(path: FaultyPath, upstream: str) -> AsyncIterator[str]:
    """Run a proxy with a fault in front of a server; yield its URL up to /v1.

    Args:
        path: The fault.
        upstream: URL of the server up to /v1.
    """
    at_once = 0

    async def respond(request: web.Request) -> web.Response:
        nonlocal at_once
        at_once += 1
        try:
            body = await request.json()
            if path.is_rejected(body):
                return web.json_response({"error": {"message": "at most 1 image may be provided"}}, status=400)
            key = path.cache_key(body)
            if key is not None and key in path.responses:
                return web.json_response(path.responses[key])
            async with session.post(f"{upstream}/chat/completions", json=path.change(body, at_once)) as response:
                reply = await response.json()
                if key is not None:
                    path.responses[key] = reply
                return web.json_response(reply, status=response.status)
        finally:
            at_once -= 1

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    async with aiohttp.ClientSession() as session:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()
