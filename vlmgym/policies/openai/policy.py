"""The `openai` policy: messages, key and options of its requests."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from vlmgym.errors import UsageError, importing
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply, environment_secrets, redact
from vlmgym.policies.openai.options import KEY_VARIABLE, Detail, OpenAIOptions
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.sandbox.drawing.encode import encode_png

if TYPE_CHECKING:
    from vlmgym.policies.openai.client import StreamTiming


def image_url(image: ImageArray) -> str:
    """Encode an image as the data URL of a PNG file."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode()}"


class OpenAIPolicy(ModelPolicy):
    """Sends the messages of each prompt, by default one user message: the images, then the text.

    Every response of the model is scored, including refusals. Text over 1,000,000 characters is truncated (see
    `finish_reason`). Replies without text and tokens, invalid bodies and bodies over 16 MiB are server failures and are
    retried; if all retries fail, the episode ends as an error and gets no score. API keys are redacted from everything
    a server returns.

    The first request is sent alone. A server that cannot be reached, a rejected key (401), and a wrong model or URL
    (404, redirect) before the first success end the run. Any other rejected request, such as a prompt flagged by a
    router (403), ends only its own episode, without a score.
    """

    name = "openai"
    counts_tokens = True
    Options = OpenAIOptions
    options: OpenAIOptions
    transform = staticmethod(image_url)

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Check options, key and installation; no request is sent."""
        super().__init__(options)
        if not self.options.model:
            raise UsageError("the openai policy needs --model")
        self._key = self._read_key()
        password = self.options.url.password or ""
        secrets = [text for text in (self._key, self.options.login, password, unquote(password)) if text]
        recorded = json.dumps(self.options.extra_fields)
        if redact(recorded, [*secrets, *environment_secrets()]) != recorded:
            raise UsageError("extra_body is recorded, so it cannot contain keys and passwords")
        with importing("the openai policy", "openai"):
            from vlmgym.policies.openai.client import OpenAIClient
        self._client = OpenAIClient(self.options, self._key, partial(redact, secrets=secrets))

    @property
    def status(self) -> str:
        """Number and cause of the retries so far."""
        return self._client.status

    async def open(self) -> None:
        """Open the client."""
        await self._client.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def respond(self, images: list[str], prompt: Prompt) -> Reply:
        """Return the model's response."""
        return await self._client.complete(self._body(images, prompt.conversation, prompt))

    async def stream(self, images: list[str], text: str) -> StreamTiming:
        """Measure the timing of one streamed response to images and text, without retries."""
        return await self._client.stream(self._body(images, text))

    def _body(
        self, images: list[str], conversation: str | Sequence[Message], prompt: Prompt | None = None
    ) -> dict[str, Any]:
        sampling = self.options.sampling(prompt)
        if self.options.at_openai and "max_tokens" in sampling:
            # OpenAI's newer models accept only the new name, most other servers only the old one.
            sampling["max_completion_tokens"] = sampling.pop("max_tokens")
        messages = request_messages(conversation, images, self.options.detail)
        return {"model": self.options.model, "messages": messages, **sampling, **self.options.extra_fields}

    def _read_key(self) -> str | None:
        name = self.options.api_key_env
        key = os.environ.get(name or KEY_VARIABLE, "") if name or self.options.default_key else ""
        if not key and name is None and self.options.at_openai:
            raise UsageError(f"set the environment variable {KEY_VARIABLE}, or name another one with --api-key-env")
        if not key and name is not None:  # the name is not shown because it may be the key
            raise UsageError("the environment variable named by --api-key-env is not set")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError("the API key contains whitespace or other invalid characters")
        return key or None


def request_messages(
    conversation: str | Sequence[Message], images: Sequence[str], detail: Detail
) -> list[dict[str, Any]]:
    """Return the messages of a request; a message without images has a string as content, which all servers accept."""

    def part(url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url} if detail == "auto" else {"url": url, "detail": detail}}

    messages = chat_messages(conversation, images, part)
    for message in messages:
        if len(message["content"]) == 1:
            message["content"] = message["content"][0]["text"]
    return messages
