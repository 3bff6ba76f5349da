"""Client for an OpenAI-compatible server: connections, retries, limits, and the bodies of responses.

Requires the extra `openai`, so it is imported lazily.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from yarl import URL

from vlmgym import __version__
from vlmgym.errors import InfrastructureError, PolicyError, UsageError, one_line, truncate
from vlmgym.policies.base import FAILURE_REASONS, Reply

if TYPE_CHECKING:
    from vlmgym.policies.openai.policy import OpenAIOptions

MAX_WAIT = 300.0
"""Maximum wait in seconds that a server can request with Retry-After."""
FIRST_BACKOFF, MAX_BACKOFF = 0.5, 30.0
"""Maximum seconds of the random wait before a retry: `FIRST_BACKOFF` before the first retry, doubled for each further
one, but never more than `MAX_BACKOFF`. Retry-After can prolong a wait."""
FIRST_CONNECT, CONNECT = 10.0, 30.0
"""Maximum seconds to connect, before and after the server has answered for the first time. They include the time in
which this process draws images, which was more than 3 seconds for 256 episodes on a busy machine."""
RETRIED = frozenset({408, 409, 424, 425, 429})
"""Client errors that may be temporary, as are all server errors."""
MAX_MESSAGE = 300
"""Maximum characters of a server's error message, finish reason and model name."""
THIS_MACHINE = ("localhost", "127.0.0.1", "0.0.0.0", "::1")
"""Hosts that are never reached through a proxy."""


class Retryable(Exception):
    """A request failed in a way that may be temporary."""

    def __init__(self, message: str, overloaded: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.overloaded, self.retry_after = overloaded, retry_after


class RequestRejected(InfrastructureError):
    """The server rejected a request; the same request would be rejected again."""


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
        """Prepare requests; `redact` removes secrets from a string."""
        self._options, self._redact = options, redact
        self._url = URL(f"{options.url.rstrip('/')}/chat/completions")
        self._proxy = _proxy(self._url)
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"vlmgym/{__version__}",
        }
        if key is not None:
            provider = options.found_provider
            header = provider.key_header if provider is not None else None
            self._headers[header or "Authorization"] = key if header else f"Bearer {key}"
        self._reset()

    def _reset(self) -> None:
        self.limit = RequestLimit(self._options.max_requests)
        self._reached = self._succeeded = self._without_system = False
        self._retries, self._last_error = 0, ""

    async def open(self) -> None:
        """Create the connection pool; connections are opened on demand."""
        self._reset()
        uses_tls = "https" in (self._url.scheme, self._proxy and self._proxy.scheme)
        connector = aiohttp.TCPConnector(limit=0, ssl=_certificates() if uses_tls else True)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    @property
    def status(self) -> str:
        """Number of retries and the last error; empty if there were none."""
        if not self._retries:
            return ""
        return f"{self._retries:,} {'retry' if self._retries == 1 else 'retries'}, last error: {self._last_error}"

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """Send a chat completion request and return the model's response.

        If the server rejects a request with a system message, and accepts it with the same text at the start of the
        first user message, it gets all further requests in this form.

        Raises:
            InfrastructureError: The server rejected the request, or all retries failed.
            PolicyError: The server cannot be reached, the key is rejected, or the URL or the model is wrong.
        """
        if self._without_system or body["messages"][0]["role"] != "system":
            return await self._send(_without_system(body))
        try:
            return await self._send(body)
        except RequestRejected:
            reply = await self._send(_without_system(body))
            self._without_system = True
            return reply

    async def _send(self, body: Mapping[str, Any]) -> Reply:
        """Send a request until the server responds or all retries have failed."""
        data, retries = json.dumps(body).encode(), self._options.retries
        for attempt in range(retries + 1):
            try:
                return await self._request(data, attempt + 1)
            except Retryable as error:
                if attempt == retries:
                    count = f" after {retries + 1} requests, last error" if retries else ""
                    raise InfrastructureError(f"no response{count}: {error}") from None
                self._retries, self._last_error = self._retries + 1, str(error)
                backoff = random.uniform(0, min(FIRST_BACKOFF * 2**attempt, MAX_BACKOFF))
                wait = max(backoff, error.retry_after or 0.0)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _request(self, data: bytes, number: int) -> Reply:
        async with self.limit.slot() as round_number:
            sent = time.perf_counter()
            try:
                async with self._post(data) as response:
                    body = await response.read()
                    latency = time.perf_counter() - sent
                reply = read_completion(body, self._redact, latency, number)
            except Retryable as error:
                if error.overloaded:
                    self.limit.on_rejected(round_number)
                if error.retry_after is not None:
                    self.limit.pause(error.retry_after)
                raise
            self._succeeded = True
            self.limit.on_success()
        return reply

    async def stream(self, body: Mapping[str, Any]) -> StreamTiming:
        """Stream one response and return its timing. Not retried.

        Raises:
            InfrastructureError: The request failed or was rejected.
            PolicyError: See `complete`.
        """
        stream_body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        sent, first = time.perf_counter(), None
        usage: dict[str, Any] = {}
        try:
            async with self._post(json.dumps(stream_body).encode()) as response:
                async for line in response.content:
                    field, _, value = line.partition(b":")
                    if field != b"data" or value.strip() == b"[DONE]":
                        continue
                    chunk = _parse(value)
                    if not isinstance(chunk, dict) or chunk.get("error"):
                        raise Retryable(f"the response is an error: {error_message(chunk, self._redact)}")
                    if first is None and any(map(_has_text, chunk["choices"])):
                        first = time.perf_counter()
                    usage = chunk.get("usage") or usage
            counts = usage["prompt_tokens"], usage["completion_tokens"]
        except Retryable as error:
            raise InfrastructureError(f"no response: {error}") from None
        except (AttributeError, KeyError, TypeError, ValueError):
            message = "the server does not stream, or does not report the token counts of streams"
            raise InfrastructureError(message) from None
        ended = time.perf_counter()
        return StreamTiming(sent, first or ended, ended, *counts)

    async def log_probability(self, body: Mapping[str, Any]) -> float | None:
        """Return the sum of the log-probabilities of a response's tokens; None if the server does not report them."""
        body = _without_system(body) if self._without_system else body
        try:
            async with self._post(json.dumps({**body, "logprobs": True}).encode()) as response:
                tokens = _parse(await response.read())["choices"][0]["logprobs"]["content"]
            total = math.fsum(token["logprob"] for token in tokens)
            return total if tokens and math.isfinite(total) else None
        except (Retryable, RequestRejected, IndexError, KeyError, TypeError, ValueError, OverflowError):
            return None  # the last two are for inf - inf and numbers too large for a float

    @asynccontextmanager
    async def _post(self, data: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and yield the response if its status is a success."""
        connect = CONNECT if self._reached else FIRST_CONNECT
        timeout = aiohttp.ClientTimeout(total=self._options.timeout, connect=connect)
        try:
            async with self._session.post(
                self._url, data=data, proxy=self._proxy, timeout=timeout, allow_redirects=False
            ) as response:
                self._reached = True
                if response.status >= 300:
                    raise self._status_error(response.status, response.headers, await response.read())
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            reason = self._describe(error)
            if self._reached:
                raise Retryable(f"connection failed ({reason})") from None
            raise PolicyError(
                f"cannot reach {self._options.url} ({reason}); check --base-url, and that the server is running"
            ) from None
        except asyncio.TimeoutError:
            raise Retryable(f"timed out after {self._options.timeout:g} s{self._through}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Retryable(f"connection failed ({self._describe(error)})") from None

    @property
    def _through(self) -> str:
        """Name of the proxy, if there is one."""
        return "" if self._proxy is None else f" through the proxy {self._proxy.with_user(None)}"

    def _describe(self, error: BaseException) -> str:
        """Describe the cause of a connection error, and name the proxy."""
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        text = f"{type(cause).__name__}: {cause}".removesuffix(": ")
        return _printable(self._redact(text)) + self._through

    def _status_error(self, status: int, headers: Mapping[str, str], body: bytes) -> Exception:
        """Return the exception for the HTTP status of a failed request."""
        reason = f"HTTP {status}{self._through}: {error_message(_parse(body), self._redact)}"
        if status in RETRIED or status >= 500:
            return Retryable(reason, overloaded=status in (429, 503), retry_after=retry_after(headers))
        if status == 401:
            advice = "name the environment variable with the right key with --api-key-env"
            return PolicyError(f"the server rejects the API key ({reason}); {advice}")
        # After the first success, a 404 or a redirect may be temporary: a router may have lost a model for a while.
        wrong = InfrastructureError if self._succeeded else PolicyError
        if status == 404:
            return wrong(f"unknown model or URL ({reason}); check --model and --base-url")
        if status < 400:
            address = _printable(self._redact(headers.get("Location", "an unknown address")))
            return wrong(f"the server redirects to {address} (HTTP {status}); pass the new URL as --base-url")
        return RequestRejected(f"the server rejected the request ({reason})")


class RequestLimit:
    """Limits the concurrent requests of one event loop.

    The limit follows TCP congestion control (additive increase, multiplicative decrease; RFC 5681): it grows by one
    per `width` successful requests, and a rejection halves it. Rejections of requests that began before the last
    halving are ignored, so 64 simultaneous rejections halve it once.
    """

    def __init__(self, max_requests: int) -> None:
        """Start at the maximum, which must be at least 1."""
        self.max_requests = max_requests
        self.in_flight = 0
        self._width = float(max_requests)
        self._round = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paused_until = 0.0

    @property
    def width(self) -> int:
        """Current limit, 1 to `max_requests`."""
        return int(self._width)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold a slot, first come, first served; yields the round for `on_rejected`: the number of halvings so far."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():
                self._release()  # admitted while being cancelled
            raise
        try:
            while (seconds := self._paused_until - time.monotonic()) > 0:
                await asyncio.sleep(seconds)
            yield self._round
        finally:
            self._release()

    def on_success(self) -> None:
        """Raise the limit."""
        self._width = min(self.max_requests, self._width + 1 / self._width)
        self._admit()

    def on_rejected(self, round_number: int) -> None:
        """Halve the limit, once for all requests that began in the same round."""
        if round_number == self._round:
            self._round += 1
            self._width = max(1.0, self._width / 2)

    def pause(self, seconds: float) -> None:
        """Hold back new requests for some seconds; overlapping pauses last until the latest end."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def _release(self) -> None:
        self.in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.width:
            admitted = self._waiting.popleft()
            if not admitted.done():  # else cancelled
                self.in_flight += 1
                admitted.set_result(None)


@cache
def _certificates() -> ssl.SSLContext:
    """Load the certificates of the system and, for systems without any, those of certifi, which takes 0.1 seconds."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _proxy(url: URL) -> URL | None:
    """Return the proxy of a URL, as the environment says."""
    host, proxies = url.host or "", getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text or host in THIS_MACHINE or proxy_bypass(f"{host}:{url.port}"):
        return None
    return URL(text if "://" in text else f"http://{text}")


def _without_system(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move the text of a system message, if there is one, to the start of the text of the first user message."""
    system, *others = body["messages"]
    if system["role"] != "system":
        return body
    content = others[0]["content"]
    if isinstance(content, str):
        content = f"{system['content']}\n\n{content}"
    else:
        *images, text = content
        content = [*images, {**text, "text": f"{system['content']}\n\n{text['text']}"}]
    return {**body, "messages": [{**others[0], "content": content}, *others[1:]]}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After as 0 to `MAX_WAIT` seconds; None if it is missing or not a number, such as a date."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return None if math.isnan(seconds) else min(max(0.0, seconds), MAX_WAIT)


# Bodies --------------------------------------------------------------------------------------------------------------


def read_completion(
    body: bytes, redact: Callable[[str], str], latency: float | None = None, requests: int | None = None
) -> Reply:
    """Read the reply from the body of a chat completion; `latency` and `requests` are those of the `Reply`.

    Refusals count as responses, and so does missing text if the model generated tokens (hidden reasoning). `redact`
    removes secrets from a string.

    Raises:
        Retryable: The body is not a completion, is empty, or reports an error.
    """
    data = _parse(body)
    try:
        choice, usage = data["choices"][0], data.get("usage") or {}
        reason = choice.get("finish_reason")
        error = data.get("error") or choice.get("error") or (reason in FAILURE_REASONS and f"finish_reason is {reason}")
        if error:
            raise Retryable(f"generation failed: {error_message(error, redact)}")
        message = choice["message"]
        text, thinking = _content(message)
        thinking = message.get("reasoning_content") or message.get("reasoning") or thinking
        reply = Reply(
            redact(text or message.get("refusal") or ""),
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
            finish_reason=reason and _printable(redact(reason)),
            reasoning=redact(thinking) if thinking else None,
            model=_printable(redact(data.get("model") or "")) or None,
            latency=latency,
            requests=requests,
        )
    except (AttributeError, IndexError, KeyError, TypeError, UsageError):
        raise Retryable(f"the response is not a completion: {error_message(data, redact)}") from None
    if not (reply.text.strip() or reply.reasoning or reply.completion_tokens):
        raise Retryable("the response is empty: it has neither text nor tokens")
    return reply


def error_message(data: Any, redact: Callable[[str], str]) -> str:
    """Extract the error message from a parsed body, as one printable line without secrets."""
    for name in ("error", "message", "detail"):
        if isinstance(data, dict):
            data = data.get(name) or data
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return _printable(redact(text)) or "no message"


def _printable(text: str) -> str:
    """Format text as one printable line of at most `MAX_MESSAGE` characters."""
    return truncate(one_line(text[: 10 * MAX_MESSAGE]), MAX_MESSAGE)


def _parse(body: bytes) -> Any:
    """Parse JSON; return other bodies as text."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _content(message: dict[str, Any]) -> tuple[str, str]:
    """Return the response and reasoning in a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return content or "", ""
    texts = {"text": "", "thinking": ""}
    for part in content:
        if (kind := part["type"]) != "reference":
            value = part[kind]  # Mistral sends thinking as a list of parts, others as a string
            texts[kind] += value if isinstance(value, str) else "".join(piece.get("text", "") for piece in value)
    return texts["text"], texts["thinking"]


def _count(value: Any) -> int | None:
    """Return a token count, or None if it is missing or invalid."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def _has_text(choice: dict[str, Any]) -> bool:
    """Return True if a streamed choice has text or reasoning; servers name the reasoning in one of two ways."""
    return any(choice["delta"].get(name) for name in ("content", "reasoning_content", "reasoning"))
