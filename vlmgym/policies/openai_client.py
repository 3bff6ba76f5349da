"""Client for an OpenAI-compatible server, with retries. Requires the extra `openai`, so it is imported lazily."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, TypeVar

import aiohttp
import anyio
import openai
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from vlmgym.errors import InfrastructureError, PolicyError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.chat_api import MAX_MESSAGE, InvalidCompletion, error_message, printable, read_completion
from vlmgym.policies.openai_options import OpenAIOptions
from vlmgym.policies.request_limit import RequestLimit

T = TypeVar("T")

_http: Any = import_module(type(openai.DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])
"""HTTP library of the client: httpx, or httpx2 in later versions."""

MAX_BODY = 16 * 2**20
"""Maximum bytes of a response body that is not streamed, so that an endless body does not exhaust memory."""
MAX_WAIT = 300.0
"""Maximum wait in seconds that a server can request with Retry-After."""
FIRST_BACKOFF, MAX_BACKOFF = 0.5, 30.0
"""Maximum seconds of the random wait before a retry: `FIRST_BACKOFF` before the first retry, doubled for each further
one, but never more than `MAX_BACKOFF`. Retry-After can prolong a wait."""
NO_KEY = "none"
"""Placeholder key for servers that need none, because the client requires one."""
HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host", "user-agent"}
)
"""Headers sent to servers other than OpenAI's. The client's other headers are dropped, because they describe this
machine or come from environment variables meant for OpenAI (OPENAI_ORG_ID, OPENAI_PROJECT_ID, OPENAI_CUSTOM_HEADERS).
"""


class _Retryable(Exception):
    """A request failed in a way that may be temporary."""

    def __init__(self, message: str, overloaded: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.overloaded, self.retry_after = overloaded, retry_after


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """Timing and token counts of one streamed response.

    Attributes:
        sent: Time when the request was sent, by `time.perf_counter` in seconds.
        first: Time when the first text or reasoning arrived; `ended` if there was none.
        ended: Time when the stream ended.
        prompt_tokens: Number of tokens of the prompt, including images.
        completion_tokens: Number of tokens of the response.
    """

    sent: float
    first: float
    ended: float
    prompt_tokens: int
    completion_tokens: int


class OpenAIClient:
    """Sends requests to one server with limited concurrency and retries, in a single event loop."""

    def __init__(self, options: OpenAIOptions, key: str | None, redact: Callable[[str], str]) -> None:
        """Create the client, whose connections are opened on demand; `redact` removes secrets from a string."""
        self.limit = RequestLimit(options.max_requests)
        self._redact, self._timeout, self._retries = redact, options.timeout, options.retries
        self._answered = False
        headers = {
            "Authorization": f"Bearer {key or NO_KEY}" if options.login is None else f"Basic {options.login}",
            "Accept-Encoding": "identity",  # the size of a compressed body is not bounded by its length
        }
        limits = _http.Limits(max_connections=options.max_requests, max_keepalive_connections=options.max_requests)
        try:
            self._http = _BoundedHttp(limits=limits, follow_redirects=False, timeout=None)  # `_limited` limits the time
        except OSError as error:
            raise UsageError(f"cannot read the certificates in SSL_CERT_FILE: {error}") from None
        except (ValueError, _http.InvalidURL):  # the URLs are not shown because they may contain passwords
            names = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
            raise UsageError(f"one of the environment variables {names} is not a valid proxy URL") from None
        try:
            self._client = openai.AsyncOpenAI(
                base_url=options.address,
                api_key=key or NO_KEY,
                max_retries=0,
                default_headers=headers,
                http_client=self._http,
            )
        except _http.InvalidURL as error:
            raise UsageError(f"base_url is not a valid URL: {error}") from None
        base = self._client.base_url
        self._url = base.copy_with(raw_path=base.raw_path + b"chat/completions")
        self._headers = {
            name: value
            for name, value in self._client.default_headers.items()
            if isinstance(value, str) and (options.at_openai or name.lower() in HEADERS)
        }

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """Send a chat completion request and return the model's response.

        Raises:
            InfrastructureError: The server rejected the request, or all retries failed.
            PolicyError: The key is rejected, or the URL or the model is wrong.
        """
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_Retryable),
            stop=stop_after_attempt(self._retries + 1),
            wait=_wait,
            reraise=True,
        )
        try:
            reply: Reply = await attempts(self._request, body)
        except _Retryable as error:
            sent = self._retries + 1
            raise InfrastructureError(
                f"no response after {sent} requests, last error: {error}" if sent > 1 else f"no response: {error}"
            ) from None
        return replace(reply, requests=attempts.statistics["attempt_number"])

    async def _request(self, body: Mapping[str, Any]) -> Reply:
        async with self.limit.slot() as round_number:
            sent = time.perf_counter()
            try:
                response = await self._limited(self._post(body))
                reply = read_completion(response.content, self._redact)
            except InvalidCompletion as error:
                raise _Retryable(str(error)) from None
            except _Retryable as error:
                if error.overloaded:
                    self.limit.on_rejected(round_number)
                if error.retry_after is not None:
                    self.limit.pause(error.retry_after)
                raise
            self.limit.on_success()
        return replace(reply, latency=time.perf_counter() - sent)

    async def stream(self, body: Mapping[str, Any]) -> StreamTiming:
        """Stream one response and return its timing. Not retried.

        Raises:
            InfrastructureError: The request failed or was rejected.
            PolicyError: See `complete`.
        """
        try:
            return await self._limited(self._read_stream(body))
        except (_Retryable, InvalidCompletion, ValueError) as error:  # ValueError: a chunk is not JSON
            raise InfrastructureError(f"no response: {printable(str(error), MAX_MESSAGE)}") from None

    async def _read_stream(self, body: Mapping[str, Any]) -> StreamTiming:
        sent, first, usage, answered = time.perf_counter(), None, None, False
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        response = await self._post(streamed, stream=True)
        parts = openai.AsyncStream(cast_to=ChatCompletionChunk, response=response, client=self._client)
        async for part in parts:
            answered = answered or bool(part.choices)
            if first is None and any(_has_text(choice.delta) for choice in part.choices or ()):
                first = time.perf_counter()
            usage = part.usage or usage
        if not answered:
            raise _Retryable("the streamed response has no choices")
        if usage is None:
            raise _Retryable("the server does not report token counts of streamed responses")
        ended = time.perf_counter()
        return StreamTiming(sent, first or ended, ended, usage.prompt_tokens, usage.completion_tokens)

    async def _post(self, body: Mapping[str, Any], stream: bool = False) -> Any:
        """Send a request and return the response, without the openai client, whose methods take twice as long."""
        request = self._http.build_request("POST", self._url, json=body, headers=self._headers)
        response = await self._http.send(request, stream=stream)
        if not response.is_success:
            raise self._status_error(response)
        return response

    async def _limited(self, request: Awaitable[T]) -> T:
        """Await a request for at most the timeout; raise timeouts and connection errors as `_Retryable`."""
        try:
            with anyio.fail_after(self._timeout):
                answer = await request
        except TimeoutError:
            raise _Retryable(f"timed out after {self._timeout:g} s") from None
        except (_http.HTTPError, openai.OpenAIError, aiohttp.ClientError, OSError) as error:
            what = printable(self._redact(_cause(error)), MAX_MESSAGE)
            raise _Retryable(f"connection failed ({what})") from None
        self._answered = True
        return answer

    def _status_error(self, response: Any) -> Exception:
        """Return the exception for the HTTP status of a failed request."""
        status, headers = response.status_code, response.headers
        reason = f"HTTP {status}: {error_message(response.content, self._redact)}"
        if status in (408, 429) or status >= 500:
            return _Retryable(reason, overloaded=status in (429, 503), retry_after=retry_after(headers))
        if status == 401:
            how = "name the environment variable with the right key with --api-key-env"
            return PolicyError(f"the server rejects the API key ({reason}); {how}")
        # After the first success, a 404 or a redirect may be temporary: a router may have lost a model for a while.
        wrong = InfrastructureError if self._answered else PolicyError
        if status == 404:
            return wrong(f"unknown model or URL ({reason}); check --model and --base-url")
        if 300 <= status < 400 and "location" in headers:
            where = printable(self._redact(headers["location"]), MAX_MESSAGE)
            return wrong(f"the server redirects to {where} (HTTP {status}); pass the new URL as --base-url")
        return InfrastructureError(f"the server rejected the request ({reason})")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After (RFC 9110, 10.2.3) as 0 to `MAX_WAIT` seconds; None if it is missing or invalid."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or timezone.utc) - datetime.now(timezone.utc)).total_seconds()
    return None if math.isnan(seconds) else min(max(0.0, seconds), MAX_WAIT)


def _has_text(delta: ChoiceDelta) -> bool:
    """Return True if a chunk has text or reasoning; servers name the reasoning in one of two ways."""
    return any(getattr(delta, name, None) for name in ("content", "reasoning_content", "reasoning"))


def _wait(state: RetryCallState) -> float:
    """Return the seconds before a retry: exponential backoff with full jitter, but at least Retry-After."""
    backoff = wait_random_exponential(multiplier=FIRST_BACKOFF, max=MAX_BACKOFF)(state)
    error = state.outcome.exception() if state.outcome is not None else None
    return max(backoff, error.retry_after or 0.0) if isinstance(error, _Retryable) else backoff


def _cause(error: BaseException) -> str:
    """Describe the root cause of an error that the client's layers have wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".removesuffix(": ")


class _BoundedHttp(openai.DefaultAioHttpClient):
    """HTTP client that rejects bodies over `MAX_BODY`, including error bodies, except streams read by the caller.

    Uses aiohttp instead of httpx, which halves the cost of a request with 64 concurrent requests: httpx scans all its
    connections for each request.
    """

    async def send(self, request: Any, **options: Any) -> Any:
        try:
            response = await super().send(request, **{**options, "stream": True})
        except ValueError as error:  # the transport rejects a status line that is not UTF-8
            raise _http.RemoteProtocolError(str(error)) from None
        if options.get("stream") and response.is_success:
            return response  # the caller reads the stream
        body = bytearray()
        try:
            async for part in response.aiter_raw():
                body += part
                if len(body) > MAX_BODY:
                    raise InvalidCompletion(f"the body exceeds {MAX_BODY:,} bytes")
        finally:
            await response.aclose()
        framing = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in framing]
        return type(response)(response.status_code, headers=headers, content=bytes(body), request=request)
