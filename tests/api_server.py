"""An OpenAI chat API server with scripted failures, in a thread with real sockets, and helpers to evaluate on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from vlmgym import make_game
from vlmgym.evaluation import EpisodeRecord, Hooks, evaluate
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy

GAME = make_game("2048", size=64)
UP = "<answer>up</answer>"


@dataclass(frozen=True)
class Request:
    """A received request; `number` is its index in order of arrival."""

    number: int
    path: str
    headers: dict[str, str]
    """Header values by lower-case name."""
    body: dict[str, Any]
    arrived: float
    at_once: int
    """Number of concurrent requests on arrival, including this one."""

    @property
    def texts(self) -> list[str]:
        return [part["text"] for message in self.body["messages"] for part in message["content"] if "text" in part]

    @property
    def images(self) -> list[dict[str, str]]:
        return [
            part["image_url"] for message in self.body["messages"] for part in message["content"] if "image_url" in part
        ]


@dataclass(frozen=True)
class Answer:
    """The server's response to a request."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int | None = None
    """Close the connection after this many bytes of the body."""
    reset: bool = False
    """Reset the connection instead of responding."""
    pause: float | None = None
    """Seconds between chunks of 1 KiB of the body."""
    raw: bytes | None = None
    """Send these bytes instead of an HTTP response, and close the connection."""


Behaviour = Callable[[Request], Answer]


def completion(content: Any, finish_reason: Any = "stop", delay: float = 0.0, **message: Any) -> Answer:
    """Make a response with a valid completion."""
    reply = {"role": "assistant", "content": content, **message}
    return as_json(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny",
            "choices": [{"index": 0, "message": reply, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
        },
        delay=delay,
    )


def as_json(data: Any, status: int = 200, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    return Answer(status, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})}, **more)


def refusal(status: int, message: str = "no", **headers: str) -> Answer:
    """Make an API error response; `Retry_After="1"` sets the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return as_json({"error": {"message": message, "type": "error", "code": None}}, status, named)


GOOD = completion(UP)


def well_behaved(request: Request) -> Answer:
    """Respond with a 2048 move that depends only on the request."""
    body = json.dumps(request.body, sort_keys=True).encode()
    return completion(f"<answer>{('up', 'right', 'down', 'left')[crc32(body) % 4]}</answer>")


def first(answers: Sequence[Answer], then: Behaviour = well_behaved) -> Behaviour:
    """Make a behaviour that responds to the first requests with `answers`, and to later ones as `then` does."""
    return lambda request: answers[request.number] if request.number < len(answers) else then(request)


class ApiServer:
    """A server that responds as its behaviour says and records all requests."""

    def __init__(self, behaviour: Behaviour = well_behaved) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self.at_once = 0
        self.url = ""

    @property
    def max_at_once(self) -> int:
        return max((request.at_once for request in self.requests), default=0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return False if the connection was closed."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        self.at_once += 1
        try:
            request = Request(len(self.requests), head[0].split()[1], headers, body, time.monotonic(), self.at_once)
            self.requests.append(request)
            answer = self.behaviour(request)
            await asyncio.sleep(answer.delay)
        finally:
            self.at_once -= 1
        return await _send(answer, writer)

    async def _run(self, ready: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._done = asyncio.Event()
        ready(asyncio.get_running_loop())
        await self._done.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[ApiServer]:
        loops: list[asyncio.AbstractEventLoop] = []
        is_ready = threading.Event()

        def ready(loop: asyncio.AbstractEventLoop) -> None:
            loops.append(loop)
            is_ready.set()

        thread = threading.Thread(target=asyncio.run, args=(self._run(ready),))
        thread.start()
        is_ready.wait()
        try:
            yield self
        finally:
            loops[0].call_soon_threadsafe(self._done.set)
            thread.join()


async def _send(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    if answer.reset:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return False
    if answer.raw is not None:
        writer.write(answer.raw)
        return False
    headers = {**answer.headers, "Content-Length": len(answer.body)}
    lines = [f"HTTP/1.1 {answer.status} -", *(f"{n}: {v}" for n, v in headers.items())]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
    body = answer.body[: answer.cut]
    if answer.pause is None:
        writer.write(body)
    else:
        for start in range(0, len(body), 1024):
            writer.write(body[start : start + 1024])
            await asyncio.sleep(answer.pause)
    await writer.drain()
    return answer.cut is None


def policy(server: ApiServer, timeout: float = 5.0, **options: Any) -> OpenAIPolicy:
    return OpenAIPolicy(OpenAIOptions(base_url=server.url, model="tiny", timeout=timeout, **options))


def play(
    behaviour: Behaviour = well_behaved,
    episodes: int = 1,
    turns: int = 1,
    seed: int = 0,
    concurrency: int = 8,
    resume: Sequence[EpisodeRecord] = (),
    hooks: Hooks = Hooks(),  # noqa: B008 - frozen
    **options: Any,
) -> tuple[list[EpisodeRecord], ApiServer]:
    """Run an evaluation; return its records and the server."""
    run: Any = {"seed": seed, "concurrency": concurrency, "resume": resume, "hooks": hooks, "workers": 0}
    with ApiServer(behaviour).running() as server:
        return evaluate(GAME, policy(server, **options), episodes, max_turns=turns, **run), server


def played(record: EpisodeRecord) -> dict[str, Any]:
    """Dump a record without times, request counts and the attempt number."""
    data = record.model_dump(mode="json")
    del data["started"], data["attempt"]
    for turn in data["turns"]:
        del turn["latency"], turn["requests"]
    return data
