"""Options of the `openai` policy."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from vlmgym.checks import check_int, check_timeout
from vlmgym.errors import UsageError
from vlmgym.policies.base import SamplingOptions, storable

Detail = Literal["auto", "low", "high"]

OPENAI = "https://api.openai.com/v1"
URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
"""Environment variables with the server and the key, as in the package `openai`."""
RESERVED_FIELDS = frozenset({"messages", "model", "n", "stream", "temperature", "top_p", "top_k", "max_tokens", "seed"})
"""Request fields that `extra_body` cannot set, because other options set them or they change the response format."""


@dataclass(frozen=True, kw_only=True)
class OpenAIOptions(SamplingOptions):
    """Options of the `openai` policy."""

    operational: ClassVar[frozenset[str]] = frozenset({"base_url", "api_key_env", "max_requests", "timeout", "retries"})

    base_url: str | None = None
    """URL of the server up to /v1, such as http://localhost:8000/v1. None means OPENAI_BASE_URL, or else OpenAI."""
    model: str = ""
    """Name of the model on the server. Required, because the record must say which model played."""
    api_key_env: str | None = None
    """Environment variable with the API key.
    None means OPENAI_API_KEY for OpenAI and for OPENAI_BASE_URL, no key for other servers."""
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
        for name, least in (("max_requests", 1), ("retries", 0)):
            check_int(name, getattr(self, name), least)
        if self.detail not in get_args(Detail):
            raise UsageError(f"detail must be one of {', '.join(get_args(Detail))}, got {self.detail!r}")
        if self.api_key_env is not None and not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", self.api_key_env):
            raise UsageError("api_key_env must be the name of an environment variable, not the key itself")
        self._check_url()
        if storable(self.model) != self.model:
            raise UsageError("model must be valid UTF-8")
        if forbidden := RESERVED_FIELDS & self.extra_fields.keys():
            raise UsageError(f"extra_body cannot set {min(forbidden)}")

    def to_dict(self) -> dict[str, Any]:
        """Return all options, with the URL stripped of user and password."""
        return super().to_dict() | {"base_url": self.address, "extra_body": self.extra_fields}

    @cached_property
    def url(self) -> SplitResult:
        """Parsed `base_url`."""
        return urlsplit(self._full_url)

    @property
    def _full_url(self) -> str:
        return self.base_url if self.base_url is not None else os.environ.get(URL_VARIABLE) or OPENAI

    @property
    def address(self) -> str:
        """URL of the server without user and password."""
        return self.url._replace(netloc=self.url.netloc.rpartition("@")[2]).geturl()

    @property
    def login(self) -> str | None:
        """User and password of `base_url` in base64, for HTTP basic authentication; None if there are none."""
        if not self.url.username and not self.url.password:
            return None
        return base64.b64encode(
            f"{unquote(self.url.username or '')}:{unquote(self.url.password or '')}".encode()
        ).decode()

    @property
    def at_openai(self) -> bool:
        """True for OpenAI's own servers, including regional ones (eu.api.openai.com)."""
        openai = urlsplit(OPENAI)
        return self.url.scheme == openai.scheme and f".{self.url.hostname}".endswith(f".{openai.hostname}")

    @property
    def default_key(self) -> bool:
        """True if OPENAI_API_KEY is meant for this server: OpenAI's own, or the one in OPENAI_BASE_URL."""
        return self.at_openai or (self.base_url is None and bool(os.environ.get(URL_VARIABLE)))

    @cached_property
    def extra_fields(self) -> dict[str, Any]:
        """Parsed `extra_body`."""
        try:
            fields = json.loads(self.extra_body)
            # Python accepts NaN and lone surrogates, servers do not.
            json.dumps(fields, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise UsageError("extra_body must be a JSON object")  # the value is not shown: it may contain a key
        return fields

    def _check_url(self) -> None:
        try:
            url = self.url
            # Raises ValueError for host names with empty or overlong labels.
            valid = url.scheme in ("http", "https") and bool((url.hostname or "").encode("idna")) and url.port != 0
        except ValueError:
            valid = False
        name = URL_VARIABLE if self.base_url is None else "base_url"
        if not valid or not self._full_url.isprintable() or " " in self._full_url:
            # The value is not shown because it may contain a password.
            raise UsageError(f"{name} must be a URL such as http://localhost:8000/v1")
        if url.query or url.fragment:
            raise UsageError(f"{name} must not contain ? or #")
