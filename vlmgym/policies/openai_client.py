"""Asking an OpenAI-compatible server with patience. Needs the extra `openai`, so it is imported when one is asked."""

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
from vlmgym.policies.request_limit import RequestLimit

T = TypeVar("T")

_http: Any = import_module(type(openai.DEFAULT_CONNECTION_LIMITS).__module__.partition(".")[0])
"""The HTTP library of the client: httpx, or httpx2 in later versions."""

MAX_BODY = 16 * 2**20
"""Bytes of a body that are read at most, so that one without an end does not fill the memory."""
MAX_WAIT = 300.0
"""Seconds that a server can make us wait by Retry-After; then it is asked again."""
FIRST_WAIT, MAX_BACKOFF = 0.5, 30.0
"""Seconds of the first wait before a request is sent again, doubled each time, and of the longest; each is drawn
between 0 and that."""
NO_KEY = "none"
"""What a server that needs no key is sent as one: the client insists on something."""
HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host", "user-agent"}
)
"""What others than OpenAI are sent: the client adds more from the environment (OPENAI_ORG_ID, OPENAI_PROJECT_ID,
OPENAI_CUSTOM_HEADERS), which is meant for OpenAI."""


class _Failed(Exception):
    """A request failed in a way that may pass: try again."""

    def __init__(self, message: str, too_many: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.too_many, self.retry_after = too_many, retry_after


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """When a response came.

    Attributes:
        sent: When the request was, in seconds by `time.perf_counter`, as are the others.
        first: When the first words came.
        ended: When the last came.
        prompt_tokens: Tokens of prompt and images.
        completion_tokens: Tokens of the response.
    """

    sent: float
    first: float
    ended: float
    prompt_tokens: int
    completion_tokens: int


class OpenAIClient:
    """Sends requests to one server, so many at once, and again if they fail; belongs to one event loop."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        login: str | None,
        redact: Callable[[str], str],
        *,
        at_openai: bool,
        max_requests: int,
        timeout: float,
        retries: int,
    ) -> None:
        """Connections are opened as they are needed.

        Args:
            base_url: Where the server is, up to `/v1`.
            key: The API key, if it needs one.
            login: User and password in base64 as HTTP has them, if it needs these instead of a key.
            redact: Takes secrets out of a text.
            at_openai: Whether the server is OpenAI's own, and may know what else the environment holds for it.
            max_requests: Requests at once, at most.
            timeout: Seconds that a request may take.
            retries: How often a failed request is sent again.

        Raises:
            UsageError: The address, or what the environment says of certificates and proxies, cannot be used.
        """
        self.limit = RequestLimit(max_requests)
        self._redact, self._timeout, self._retries = redact, timeout, retries
        self._answered = False
        headers = {
            "Authorization": f"Bearer {key or NO_KEY}" if login is None else f"Basic {login}",
            "Accept-Encoding": "identity",  # the length of a compressed body says nothing
        }
        hooks = {"request": [] if at_openai else [_drop_headers]}
        limits = _http.Limits(max_connections=max_requests, max_keepalive_connections=max_requests)
        try:
            http = _BoundedHttp(limits=limits, follow_redirects=False, event_hooks=hooks)
        except OSError as error:
            raise UsageError(f"SSL_CERT_FILE names a file of certificates, which cannot be read: {error}") from None
        except (ValueError, _http.InvalidURL):  # the addresses are not shown: they may hold passwords
            names = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
            raise UsageError(f"one of the environment variables {names} is no address of a proxy") from None
        try:
            self._client = openai.AsyncOpenAI(
                base_url=base_url,
                api_key=key or NO_KEY,
                max_retries=0,
                timeout=None,  # `_post` limits the whole of a request, not only each of its parts
                default_headers=headers,
                http_client=http,
            )
        except _http.InvalidURL as error:
            raise UsageError(f"base_url is no address that can be asked: {error}") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """The model's response to a chat completion request.

        Raises:
            InfrastructureError: The server did not answer, not even to retries, or refused this request.
            PolicyError: The server refuses all requests: the key is wrong or, if it has answered none, its address or
                the model.
        """
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_Failed),
            stop=stop_after_attempt(self._retries + 1),
            wait=_wait,
            reraise=True,
        )
        try:
            reply: Reply = await attempts(self._request, body)
        except _Failed as error:
            sent = self._retries + 1
            raise InfrastructureError(
                f"no response after {sent} requests, the last: {error}" if sent > 1 else f"no response: {error}"
            ) from None
        return replace(reply, requests=attempts.statistics["attempt_number"])

    async def _request(self, body: Mapping[str, Any]) -> Reply:
        async with self.limit.place() as round_begun:
            sent = time.perf_counter()
            try:
                reply = read_completion(await self._post(body), self._redact)
            except InvalidCompletion as error:
                raise _Failed(str(error)) from None
            except _Failed as error:
                if error.too_many:
                    self.limit.refused(round_begun)
                if error.retry_after is not None:
                    self.limit.pause(error.retry_after)
                raise
            self.limit.answered()
        return replace(reply, latency=time.perf_counter() - sent)

    async def stream(self, body: Mapping[str, Any]) -> StreamTiming:
        """When the parts of a response came; the request is sent once.

        Raises:
            InfrastructureError: The server did not answer, or refused this request.
            PolicyError: The server refuses all requests.
        """
        try:
            return await self._limited(self._read_stream(body))
        except (_Failed, ValueError) as error:  # a part that is not JSON is a ValueError
            raise InfrastructureError(f"no response: {printable(str(error), MAX_MESSAGE)}") from None

    async def _read_stream(self, body: Mapping[str, Any]) -> StreamTiming:
        sent, first, usage, answered = time.perf_counter(), None, None, False
        parts = await self._client.post(
            "/chat/completions",
            cast_to=ChatCompletionChunk,
            body={**body, "stream": True, "stream_options": {"include_usage": True}},
            stream=True,
            stream_cls=openai.AsyncStream[ChatCompletionChunk],
        )
        async for part in parts:
            answered = answered or bool(part.choices)
            if first is None and any(_says(choice.delta) for choice in part.choices or ()):
                first = time.perf_counter()
            usage = part.usage or usage
        if not answered:
            raise _Failed("there are no choices in what the server streamed")
        if usage is None:
            raise _Failed("the server does not say how many tokens a streamed response has")
        ended = time.perf_counter()
        return StreamTiming(sent, first or ended, ended, usage.prompt_tokens, usage.completion_tokens)

    async def _post(self, body: Mapping[str, Any]) -> bytes:
        return await self._limited(self._client.post("/chat/completions", cast_to=bytes, body=body))

    async def _limited(self, request: Awaitable[T]) -> T:
        """Limit the time of a request, and name its errors by what is to be done about them."""
        try:
            with anyio.fail_after(self._timeout):
                answer = await request
        except TimeoutError:
            raise _Failed(f"no answer within {self._timeout:g} s") from None
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except (openai.OpenAIError, aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, InvalidCompletion):
                raise _Failed(printable(self._redact(str(error.__cause__)), MAX_MESSAGE)) from None
            what = printable(self._redact(_cause(error)), MAX_MESSAGE)
            raise _Failed(f"the connection failed ({what})") from None
        self._answered = True
        return answer

    def _refusal(self, error: openai.APIStatusError) -> Exception:
        """What to raise for a status that is not 200."""
        status, headers = error.status_code, error.response.headers
        said = f"HTTP {status}: {error_message(error.response.content, self._redact)}"
        if status in (408, 429) or status >= 500:
            return _Failed(said, too_many=status in (429, 503), retry_after=retry_after(headers))
        if status == 401:
            how = "name the environment variable that holds the key by --api-key-env"
            return PolicyError(f"the server refuses the API key ({said}); {how}")
        # Before the first answer these show a wrong option. Later they do not: a router has lost a model for a while.
        wrong = InfrastructureError if self._answered else PolicyError
        if status == 404:
            return wrong(f"the server has no such model or address ({said}); check --model and --base-url")
        if 300 <= status < 400 and "location" in headers:
            where = printable(self._redact(headers["location"]), MAX_MESSAGE)
            return wrong(f"the server redirects to {where} (HTTP {status}); give its new address as --base-url")
        return InfrastructureError(f"the server refused the request ({said})")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait by its header Retry-After (a number, or a date: RFC 9110, 10.2.3).

    Returns:
        0 to `MAX_WAIT`, or None if it does not ask, or nobody knows for what.
    """
    asked = headers.get("retry-after", "").strip()
    try:
        seconds = float(asked)
    except ValueError:
        try:
            date = parsedate_to_datetime(asked)
        except (ValueError, TypeError, OverflowError):
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or timezone.utc) - datetime.now(timezone.utc)).total_seconds()
    return None if math.isnan(seconds) else min(max(0.0, seconds), MAX_WAIT)


def _says(delta: ChoiceDelta) -> bool:
    """Whether a part has words, be it of hidden reasoning, for which servers have two names."""
    return any(getattr(delta, name, None) for name in ("content", "reasoning_content", "reasoning"))


def _wait(state: RetryCallState) -> float:
    """Seconds to wait before the next request: exponential back-off with full jitter, or longer if the server asks."""
    backoff = wait_random_exponential(multiplier=FIRST_WAIT, max=MAX_BACKOFF)(state)
    error = state.outcome.exception() if state.outcome is not None else None
    return max(backoff, error.retry_after or 0.0) if isinstance(error, _Failed) else backoff


def _cause(error: BaseException) -> str:
    """What was at the bottom of an error, which the layers of a client name in ways of their own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".removesuffix(": ")


async def _drop_headers(request: Any) -> None:
    """Take out of a request what only OpenAI is sent."""
    for name in set(request.headers) - HEADERS:
        del request.headers[name]


class _BoundedHttp(openai.DefaultAioHttpClient):
    """Reads all bodies itself, those of errors included, and none beyond `MAX_BODY`.

    Connections are aiohttp's: a request of 64 at once costs half of what it does with httpx's own, which looks through
    all connections for each.
    """

    async def send(self, request: Any, **options: Any) -> Any:
        response = await super().send(request, **{**options, "stream": True})
        if options.get("stream") and response.is_success:
            return response  # a stream is read by who asked for it, and not kept
        body = bytearray()
        try:
            async for part in response.aiter_raw():
                body += part
                if len(body) > MAX_BODY:
                    raise InvalidCompletion(f"the body is longer than {MAX_BODY:,} bytes")
        finally:
            await response.aclose()
        encoding = response.headers.get("content-encoding", "").strip()
        if encoding.lower() not in ("", "identity"):
            told = f"the body is encoded as {encoding}, which was not asked for"
            if response.is_success:
                raise InvalidCompletion(told)
            body = bytearray(told.encode())  # the status says more
        framing = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in framing]
        return type(response)(response.status_code, headers=headers, content=bytes(body), request=request)
