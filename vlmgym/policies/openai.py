"""The `openai` policy: models behind an OpenAI-compatible server (OpenAI, vLLM, llama.cpp and others)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from vlmgym.errors import UsageError, importing
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply
from vlmgym.policies.chat_api import image_url, request_messages
from vlmgym.policies.openai_options import OpenAIOptions
from vlmgym.policies.redaction import Redactor
from vlmgym.sandbox.core.prompt import Message

if TYPE_CHECKING:
    from vlmgym.policies.openai_client import StreamTiming

DEFAULT_KEY = "OPENAI_API_KEY"
"""Environment variable with the key for OpenAI's server. Not sent to other servers unless `api_key_env` names it."""


class OpenAIPolicy(ModelPolicy):
    """Sends the messages of each prompt, by default one user message: the images, then the text.

    Every response of the model is scored, including refusals and empty text. Text over 1,000,000 characters is
    truncated (see `finish_reason`). Invalid bodies and bodies over 16 MiB are server failures and are retried; if all
    retries fail, the episode ends as an error and gets no score. API keys are redacted from everything a server
    returns.

    A rejected key (401) ends the run, as does a wrong model or URL (404, redirect) before the first success. Any other
    rejected request, such as a prompt flagged by a router (403), ends only its own episode, without a score.
    """

    name = "openai"
    counts_tokens = True
    Options = OpenAIOptions
    options: OpenAIOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Check options, key and installation; no request is sent."""
        super().__init__(options)
        if not self.options.model:
            raise UsageError("the openai policy needs --model")
        self.transform = partial(image_url, self.options.image_format)
        self._key = self._read_key()
        recorded = json.dumps(self.options.extra_fields)
        if self._secrets().redact(recorded) != recorded:
            raise UsageError("extra_body is recorded, so it cannot contain the API key or the password of --base-url")
        with importing("the openai policy", "openai"):
            from vlmgym.policies.openai_client import OpenAIClient
        self._new_client = partial(OpenAIClient, self.options, self._key, self._secrets().redact)
        self._new_client()  # raises errors now, before the run has a folder
        self._opened = AsyncExitStack()

    async def open(self) -> None:
        """Create the client."""
        self._client = self._new_client()
        self._opened.push_async_callback(self._client.close)

    async def close(self) -> None:
        """Close all connections."""
        await self._opened.aclose()

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
        named = self.options.api_key_env
        if named is None and not self.options.at_openai:
            return None
        key = os.environ.get(named or DEFAULT_KEY, "")
        if not key and named is None:
            raise UsageError(f"set the environment variable {DEFAULT_KEY}, or name another one with --api-key-env")
        if not key:  # the name is not shown because it may be the key
            raise UsageError("the environment variable named by --api-key-env is not set")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError("the API key contains whitespace or other invalid characters")
        return key

    def _secrets(self) -> Redactor:
        password = self.options.url.password or ""
        secrets = (self._key, self.options.login, password, unquote(password))
        return Redactor(secret for secret in secrets if secret)
