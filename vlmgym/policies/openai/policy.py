"""The `openai` policy: options, key and messages of its requests."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args
from urllib.parse import urlsplit

from vlmgym.checks import check_int, check_timeout
from vlmgym.errors import UsageError, importing
from vlmgym.policies.base import (
    ModelPolicy,
    PolicyOptions,
    Prompt,
    Reply,
    SamplingOptions,
    environment_secrets,
    json_object,
    redact,
)
from vlmgym.policies.openai.providers import Provider, find_provider
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.sandbox.drawing.encode import encode_png

if TYPE_CHECKING:
    from vlmgym.policies.openai.client import StreamTiming


Detail = Literal["auto", "low", "high"]

OPENAI = "https://api.openai.com/v1"
URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
"""Environment variables with the server and the key, as in the package `openai`."""
RESERVED_FIELDS = frozenset({"messages", "model", "n", "stream", "temperature", "top_p", "top_k", "max_tokens", "seed"})
"""Request fields that `extra_body` cannot set, because other options set them or they change the response format."""


@dataclass(frozen=True, kw_only=True)
class OpenAIOptions(SamplingOptions):
    """Options of the `openai` policy."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {"provider", "base_url", "api_key_env", "max_requests", "timeout", "retries"}
    )

    provider: str | None = None
    """Server and its key: openai, gemini, anthropic, openrouter, together, fireworks, azure, ollama, lmstudio, vllm, or
    FILE.toml:NAME (docs/evaluating.md)."""
    base_url: str | None = None
    """URL of the server up to /v1, such as http://localhost:8000/v1.
    None means that of --provider, OPENAI_BASE_URL, or else OpenAI."""
    model: str = ""
    """Name of the model on the server. Required, because the record must say which model played."""
    api_key_env: str | None = None
    """Environment variable with the API key.
    None means that of --provider, OPENAI_API_KEY for OpenAI and for OPENAI_BASE_URL, no key for other servers."""
    detail: Detail = "auto"
    """Resolution at which OpenAI's models process images, which affects the number of prompt tokens."""
    extra_body: str = "{}"
    """Additional request fields as a JSON object, such as '{"reasoning_effort": "low"}'.
    Recorded, so API keys are rejected."""
    max_requests: int = 64
    """Maximum concurrent requests; drops on HTTP 429 and 503, and recovers."""
    timeout: float = 600.0
    """Maximum seconds per request."""
    retries: int = 5
    """Maximum retries after a timeout, a connection error, an invalid or empty reply, HTTP 408, 409, 424, 425, 429 and
    5xx. Waits grow exponentially, with jitter, and are never shorter than Retry-After.
    If all retries fail, the episode ends as an error and gets no score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_timeout(self.timeout)
        for name, minimum in (("max_requests", 1), ("retries", 0)):
            check_int(name, getattr(self, name), minimum)
        if self.detail not in get_args(Detail):
            raise UsageError(f"detail must be one of {', '.join(get_args(Detail))}, got {self.detail!r}")
        try:
            url = urlsplit(self.url)
            valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            valid = False
        if not valid or url.username or url.password or url.query or url.fragment:
            # The value is not shown because it may contain a password.
            default = URL_VARIABLE if self.provider is None else f"the URL of {self.provider}"
            name = default if self.base_url is None else "base_url"
            raise UsageError(f"{name} must be a URL such as http://localhost:8000/v1, without user, password, ? and #")
        self._check_provider()
        if self.template_options and "chat_template_kwargs" in self.extra_fields:
            raise UsageError("enable_thinking is set twice: extra_body has chat_template_kwargs")
        if forbidden := RESERVED_FIELDS & self.extra_fields.keys():
            raise UsageError(f"extra_body cannot set {min(forbidden)}")

    def _check_provider(self) -> None:
        """Raise `UsageError` if an option has no effect at the provider, so that the record would be wrong."""
        provider = self.found_provider
        if provider is None:
            return
        fields = {*self.sampling(), *self.extra_fields, *(["seed"] if self.sample_seed is not None else [])}
        if ignored := fields.intersection(provider.ignored):
            raise UsageError(f"{self.provider} ignores {min(ignored)} ({provider.source}): leave it out")
        highest = provider.max_temperature
        if highest is not None and (self.temperature or 0.0) > highest:
            raise UsageError(f"{self.provider} lowers temperatures above {highest:g} ({provider.source})")

    def to_dict(self) -> dict[str, Any]:
        """Return all options as JSON-serialisable values."""
        return super().to_dict() | {"base_url": self.url, "extra_body": self.extra_fields}

    @property
    def url(self) -> str:
        """URL of the server up to /v1."""
        if self.base_url is not None:
            return self.base_url
        return self.found_provider.url if self.found_provider else os.environ.get(URL_VARIABLE) or OPENAI

    @cached_property
    def found_provider(self) -> Provider | None:
        """The provider, if one is named."""
        return None if self.provider is None else find_provider(self.provider)

    @property
    def at_openai(self) -> bool:
        """True for OpenAI's own servers, including regional ones (eu.api.openai.com)."""
        url, openai = urlsplit(self.url), urlsplit(OPENAI)
        return url.scheme == openai.scheme and f".{url.hostname}".endswith(f".{openai.hostname}")

    @property
    def default_key(self) -> bool:
        """True if OPENAI_API_KEY is meant for this server: OpenAI's own, or the one in OPENAI_BASE_URL."""
        if self.provider is not None:
            return False
        return self.at_openai or (self.base_url is None and bool(os.environ.get(URL_VARIABLE)))

    @cached_property
    def extra_fields(self) -> dict[str, Any]:
        """Parsed `extra_body`."""
        return json_object("extra_body", self.extra_body)


def image_url(image: ImageArray) -> str:
    """Encode an image as the data URL of a PNG file."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode()}"


class OpenAIPolicy(ModelPolicy):
    """Sends the messages of each prompt, by default one user message: the images, then the text.

    Every response of the model is scored, including refusals. Replies without text and tokens and invalid bodies are
    server failures and are retried; if all retries fail, the episode ends as an error and gets no score. API keys are
    redacted from everything a server returns.

    A server that cannot be reached, a rejected key (401), and a wrong model or URL (404, redirect) before the first
    success end the run. Any other rejected request, such as a prompt flagged by a router (403), ends only its own
    episode, without a score.
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
        secrets = [self._key] if self._key else []
        extra_body = json.dumps(self.options.extra_fields)
        if redact(extra_body, [*secrets, *environment_secrets()]) != extra_body:
            raise UsageError("extra_body is recorded, so it cannot contain keys")
        with importing("the openai policy", "openai"):
            from vlmgym.policies.openai.client import OpenAIClient
        self._client = OpenAIClient(self.options, self._key, partial(redact, secrets=secrets))

    @property
    def status(self) -> str:
        """Number of retries and the last error; empty if there were none."""
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

    async def log_probability(self, images: list[str], prompt: Prompt) -> float | None:
        """Return the log-probability of one response; None if the server does not report it. Not retried."""
        return await self._client.log_probability(self._body(images, prompt.conversation, prompt))

    def _body(
        self, images: list[str], conversation: str | Sequence[Message], prompt: Prompt | None = None
    ) -> dict[str, Any]:
        sampling = self.options.sampling(prompt)
        provider = self.options.found_provider
        if "max_tokens" in sampling and (self.options.at_openai or (provider and provider.max_tokens != "max_tokens")):
            # OpenAI's newer models accept only the new name, most other servers only the old one.
            sampling["max_completion_tokens"] = sampling.pop("max_tokens")
        if template := self.options.template_options:
            sampling["chat_template_kwargs"] = template
        messages = request_messages(conversation, images, self.options.detail)
        return {"model": self.options.model, "messages": messages, **sampling, **self.options.extra_fields}

    def _read_key(self) -> str | None:
        provider, name = self.options.found_provider, self.options.api_key_env
        default = KEY_VARIABLE if self.options.default_key else provider and provider.key
        key = os.environ.get(name or default or "", "")
        if not key and name is None and (provider is not None or self.options.at_openai) and default:
            raise UsageError(f"set the environment variable {default}, or name another one with --api-key-env")
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
