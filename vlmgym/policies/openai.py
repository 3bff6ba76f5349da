"""Models behind an OpenAI-compatible server: OpenAI's own, vLLM, llama.cpp, and most others."""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from vlmgym.checks import check_int
from vlmgym.errors import UsageError, missing_extra
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply, check_timeout
from vlmgym.policies.chat_api import Detail, ImageFormat, image_url, user_message
from vlmgym.policies.redaction import Redactor
from vlmgym.policies.sampling import SamplingOptions

if TYPE_CHECKING:
    from vlmgym.policies.openai_client import OpenAIClient, StreamTiming

OPENAI = "https://api.openai.com/v1"
DEFAULT_KEY = "OPENAI_API_KEY"
"""The variable of the key for OpenAI's own server; sent to no other, unless `api_key_env` names it."""
OURS = frozenset({"messages", "model", "n", "stream", "temperature", "top_p", "top_k", "max_tokens", "seed", "stop"})
"""Fields of a request that `extra_body` cannot set: other options do, or the reply could not be read."""
KEYS = re.compile(
    "(api|access|auth|private|secret)[-_ ]?key|(access|api|auth|hf)[-_ ]?token|authorization|password|secret", re.I
)
"""Names of fields that hold secrets, which `extra_body` cannot set at any depth: it is recorded."""


@dataclass(frozen=True, kw_only=True)
class OpenAIOptions(SamplingOptions):
    """Options of a policy that asks an OpenAI-compatible server."""

    operational: ClassVar[frozenset[str]] = frozenset({"base_url", "api_key_env", "max_requests", "timeout", "retries"})

    base_url: str = OPENAI
    """Where the server is, up to /v1, for instance http://localhost:8000/v1."""
    model: str = ""
    """Name of the model, as the server knows it. It is needed: a record has to say who played."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key. Default: OPENAI_API_KEY at OpenAI's own server, and no
    key anywhere else."""
    image_format: ImageFormat = "png"
    """How images are sent: png is exact, jpeg is smaller for noisy images only."""
    detail: Detail = "auto"
    """How closely OpenAI's models look at images, and how many tokens they cost."""
    extra_body: str = "{}"
    """More fields of the request as a JSON object, for instance '{"reasoning_effort": "low"}'. They are recorded, so
    keys are refused."""
    max_requests: int = 64
    """Requests at once, at most: fewer while the server answers 429 or 503, then more again."""
    timeout: float = 600.0
    """Seconds that one request may take."""
    retries: int = 5
    """How often a request is sent again after a time-out, a broken connection or body, HTTP 408, 429 or 5xx: after
    exponential back-off with jitter, and as late as Retry-After asks. Then the episode ends as an error, unscored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_timeout(self.timeout)
        for name, least in (("max_requests", 1), ("retries", 0)):
            check_int(name, getattr(self, name), least)
        for name, accepted in (("image_format", get_args(ImageFormat)), ("detail", get_args(Detail))):
            if getattr(self, name) not in accepted:
                raise UsageError(f"{name} is one of {', '.join(accepted)}, not {getattr(self, name)!r}")
        if self.api_key_env is not None and not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", self.api_key_env):
            raise UsageError("api_key_env is the name of an environment variable, not the key itself")
        self._check_url()
        if not all(_is_unicode(text) for text in (self.model, *self.stop)):
            raise UsageError("model and stop are texts in UTF-8")
        if forbidden := OURS & self.extra_fields.keys():
            raise UsageError(f"extra_body cannot set {min(forbidden)}")

    def to_dict(self) -> dict[str, Any]:
        """All options, the address without user and password."""
        return super().to_dict() | {"base_url": self.address, "extra_body": self.extra_fields}

    @cached_property
    def url(self) -> SplitResult:
        """The parts of `base_url`."""
        return urlsplit(self.base_url)

    @property
    def address(self) -> str:
        """`base_url` without user and password."""
        return self.url._replace(netloc=self.url.netloc.rpartition("@")[2]).geturl()

    @property
    def login(self) -> str | None:
        """User and password of `base_url` in base64, as HTTP has them, or None."""
        if not self.url.username and not self.url.password:
            return None
        return base64.b64encode(
            f"{unquote(self.url.username or '')}:{unquote(self.url.password or '')}".encode()
        ).decode()

    @property
    def at_openai(self) -> bool:
        """Whether the server is OpenAI's own, be it that of a region (eu.api.openai.com)."""
        own = urlsplit(OPENAI)
        return self.url.scheme == own.scheme and f".{self.url.hostname}".endswith(f".{own.hostname}")

    @cached_property
    def extra_fields(self) -> dict[str, Any]:
        """The fields of `extra_body`."""
        try:
            fields = json.loads(self.extra_body, object_pairs_hook=_without_keys)
            # Python reads NaN, and escapes of half a character, which servers do not.
            json.dumps(fields, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise UsageError("extra_body is a JSON object")  # not shown: it may hold a key
        return fields

    def _check_url(self) -> None:
        try:
            url = self.url
            # A name with an empty part, or one that is too long, has no encoding, and is a ValueError.
            good = url.scheme in ("http", "https") and bool((url.hostname or "").encode("idna")) and url.port != 0
        except ValueError:
            good = False
        if not good or not self.base_url.isprintable() or " " in self.base_url:
            raise UsageError("base_url is an address such as http://localhost:8000/v1")  # not shown: it may hold a key
        if url.query or url.fragment:
            raise UsageError("base_url is an address without ? and #")


class OpenAIPolicy(ModelPolicy):
    """Asks for each prompt by itself: one message of the user with the images, then the text.

    All that a server does wrong is told apart from what a model says. A refusal or silence is a response, and scored;
    so is a response without an end, of which the first 1,000,000 characters are read, as if the model had been limited
    to them (`finish_reason` says so). What cannot be read as a completion, or has more than 16 MiB, is a failed
    request: sent again, and in the end an episode without a score. Keys are taken out of everything a server says.

    What a server refuses is told apart, too. A wrong key (401) ends the run, and so does a wrong model or address (404,
    a redirection), unless there was an answer before. Any other refusal, such as that of a prompt that a router has
    flagged (403), ends its episode without a score, and the others go on.
    """

    name = "openai"
    counts_tokens = True
    Options = OpenAIOptions
    options: OpenAIOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Nothing is asked yet.

        Raises:
            UsageError: The model or the key is missing, the key would be recorded, packages that this policy needs are
                missing, or certificates, proxies or the address cannot be used.
        """
        super().__init__(options)
        if not self.options.model:
            raise UsageError("the policy openai needs the name of a --model")
        self.look = partial(image_url, self.options.image_format)
        self._key = self._read_key()
        recorded = json.dumps(self.options.extra_fields)
        if self._secrets().redact(recorded) != recorded:
            raise UsageError("extra_body is recorded, so it cannot hold the API key or the password of --base-url")
        self._client_type = _client_type()
        self._new_client()  # one that cannot be made is refused now, before a run has a folder
        self._opened = AsyncExitStack()

    async def open(self) -> None:
        """Get ready to connect."""
        self._client = self._new_client()
        self._opened.push_async_callback(self._client.close)

    async def close(self) -> None:
        """Close the connections."""
        await self._opened.aclose()

    async def respond(self, images: list[str], prompt: Prompt) -> Reply:
        """The model's response."""
        return await self._client.complete(self._body(images, prompt))

    async def stream(self, images: list[str], prompt: Prompt) -> StreamTiming:
        """When the model's response came, for measurements: asked once, without retries."""
        return await self._client.stream(self._body(images, prompt))

    def _new_client(self) -> OpenAIClient:
        options = self.options
        return self._client_type(
            options.address,
            self._key,
            options.login,
            self._secrets().redact,
            at_openai=options.at_openai,
            max_requests=options.max_requests,
            timeout=options.timeout,
            retries=options.retries,
        )

    def _body(self, images: list[str], prompt: Prompt) -> dict[str, Any]:
        sampling = self.options.sampling(prompt)
        if self.options.at_openai and "max_tokens" in sampling:
            # OpenAI's newer models know only this name; most other servers know only the older one.
            sampling["max_completion_tokens"] = sampling.pop("max_tokens")
        message = user_message(images, prompt, self.options.detail)
        return {"model": self.options.model, "messages": [message], **sampling, **self.options.extra_fields}

    def _read_key(self) -> str | None:
        named = self.options.api_key_env
        if named is None and not self.options.at_openai:
            return None
        key = os.environ.get(named or DEFAULT_KEY, "")
        if not key and named is None:
            raise UsageError(f"set the environment variable {DEFAULT_KEY}, or name another one by --api-key-env")
        if not key:  # the name is not shown: it may be the key
            raise UsageError("the environment variable that --api-key-env names is not set")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError("the API key has characters that no key can have, such as blanks or line ends")
        return key

    def _secrets(self) -> Redactor:
        password = self.options.url.password or ""
        secrets = (self._key, self.options.login, password, unquote(password))
        return Redactor(secret for secret in secrets if secret)


def _is_unicode(text: str) -> bool:
    """Whether a text can be sent: arguments of a command that are not UTF-8 have halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_keys(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of `extra_body`."""
    if any(KEYS.search(name) for name, _ in fields):
        raise UsageError(
            "extra_body is recorded, so it cannot have fields such as api_key and authorization; "
            "name the environment variable that holds the key by --api-key-env"
        )
    return dict(fields)


def _client_type() -> type[OpenAIClient]:
    try:
        from vlmgym.policies.openai_client import OpenAIClient
    except ImportError as error:
        raise missing_extra("the policy openai", error.name or str(error), "openai") from None
    return OpenAIClient
