"""How close many episodes at once come to the time that their server takes: what playing adds to it, and where.

pip install -e .[bench,openai] && python benchmarks/concurrency.py --json concurrency.json

A server in a process of its own answers every request after the same time, however many there are. All episodes are
played at once through `evaluate` and the policy `openai`, with as many requests at once, so the ideal time is turns x
latency. CPU time is that of the processes; drawing and encoding are measured afterwards, on the images that were
sent.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.evaluation import EpisodeRecord, evaluate
from vlmgym.policies.chat_api import image_url
from vlmgym.policies.openai import OpenAIOptions, OpenAIPolicy
from vlmgym.records.files import check_own_file, write_own_json
from vlmgym.rollout.event_loop import run_async
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_game
from vlmgym.workers.limits import num_workers_for
from vlmgym.workers.pool import ProcessPool
from vlmgym.workers.process import exit_with_parent

ANSWERS = ("up", "left", "down", "right")
GOAL = 1.15


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play against a server of known latency and print what playing adds to it."""

    sizes: tuple[int, ...] = (256, 640)
    """Sides of the images."""
    episodes: int = 64
    """Episodes, and requests, at once."""
    max_turns: int = 50
    """Turns of each episode."""
    latency: float = 0.2
    """Seconds that the server takes for a request."""
    workers: int | None = None
    """Worker processes. Default: one per core."""
    rounds: int = 3
    """Runs at each size, in turn."""
    json: Path | None = None
    """Write all numbers to this file."""

    def __post_init__(self) -> None:
        if min(self.episodes, self.max_turns, self.rounds, self.latency) <= 0:
            raise UsageError("episodes, turns, rounds and latency are more than 0")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: seconds, their ideal, and CPU milliseconds a turn of the processes and of parts of the workers' work."""

    seconds: float
    ideal: float
    turns: int
    main: float
    workers: float
    drawing: float
    encoding: float


# The server ----------------------------------------------------------------------------------------------------------


class Answering(asyncio.Protocol):
    """Reads requests of one connection and answers each after some time, with as little work as possible."""

    def __init__(self, latency: float) -> None:
        self.latency, self.read, self.answered = latency, bytearray(), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, blank, body = self.read.partition(b"\r\n\r\n")
        if not blank:
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) == int(length.partition(b":")[2]):
            self.read.clear()
            asyncio.get_running_loop().call_later(self.latency, self.answer)

    def answer(self) -> None:
        text = f"<think>I slide.</think><answer>{ANSWERS[self.answered % len(ANSWERS)]}</answer>"
        self.answered += 1
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520}
        body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


def serve(latency: float, port: Connection) -> None:
    exit_with_parent()

    async def serving() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Answering(latency), "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serving())


@contextmanager
def server(latency: float) -> Iterator[str]:
    """The address of a server."""
    context = multiprocessing.get_context("spawn")
    port, theirs = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(latency, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.recv()}/v1"
    finally:
        process.kill()
        process.join()


# Measuring -----------------------------------------------------------------------------------------------------------


def cpu(processes: list[psutil.Process]) -> float:
    """Seconds of CPU that processes have used."""
    used = [process.cpu_times() for process in processes]
    return float(sum(times.user + times.system for times in used))


def seconds_of(work: Callable[[Any], Any], items: list[Any]) -> float:
    start = time.perf_counter()
    for item in items:
        work(item)
    return time.perf_counter() - start


def run(game: Game[Any, Any], url: str, workers: ProcessPool, options: Options) -> Run:
    def play(turns: int) -> list[EpisodeRecord]:
        policy = OpenAIPolicy(OpenAIOptions(base_url=url, model="none", max_requests=options.episodes))
        at_once = options.episodes
        return evaluate(game, policy, at_once, max_turns=turns, concurrency=at_once, workers=workers)

    play(1)  # workers import the game and load its sprites
    me = [psutil.Process()]
    others = [psutil.Process(pid) for pid in {*run_async(process_ids(workers))} - {me[0].pid}]
    before = cpu(me), cpu(others)
    start = time.perf_counter()
    records = play(options.max_turns)
    seconds = time.perf_counter() - start
    spent = cpu(me) - before[0], cpu(others) - before[1]
    turns = check(records, options)
    positions = [game.from_data(turn.state) for record in records[:8] for turn in record.turns]
    images = [game.draw(position) for position in positions]
    drawing = seconds_of(game.draw, positions) / len(positions)
    encoding = seconds_of(lambda image: image_url("png", image), images) / len(images)
    milliseconds = (1e3 * part for part in (spent[0] / turns, spent[1] / turns, drawing, encoding))
    return Run(seconds, options.max_turns * options.latency, turns, *milliseconds)


async def process_ids(workers: ProcessPool) -> list[int]:
    await workers.start()
    return await asyncio.gather(*(workers.call(nap_and_tell) for _ in range(4 * workers.count)))


def nap_and_tell() -> int:
    time.sleep(0.02)
    return os.getpid()


def check(records: list[EpisodeRecord], options: Options) -> int:
    """The number of turns, if it is the one that the ideal time is of."""
    turns = sum(len(record.turns) for record in records)
    if turns != options.episodes * options.max_turns:
        raise UsageError("an episode ended before the limit of turns: ask for fewer --max-turns")
    return turns


def table(runs: dict[int, list[Run]], options: Options, workers: int) -> Table:
    title = f"{options.episodes} episodes of 2048 at once, {options.max_turns} turns, {options.latency:g} s a request, "
    found = Table(title=f"{title}{workers} workers")
    for column in ("image", "seconds / ideal: median", "best", "worst", "turns/s"):
        found.add_column(column, justify="right")
    for column in ("main process", "workers", "of that drawing", "encoding"):
        found.add_column(f"{column}, CPU ms a turn", justify="right")
    for size, measured in runs.items():
        ratios = [one.seconds / one.ideal for one in measured]
        rate = statistics.median(one.turns / one.seconds for one in measured)
        ratio = statistics.median(ratios)
        parts = (statistics.median(getattr(one, part) for one in measured)
                 for part in ("main", "workers", "drawing", "encoding"))  # fmt: skip
        goal = "" if ratio <= GOAL else f" (goal: {GOAL})"
        found.add_row(
            f"{size} x {size}",
            f"{ratio:.3f}{goal}",
            f"{min(ratios):.3f}",
            f"{max(ratios):.3f}",
            f"{rate:.0f}",
            *(f"{part:.2f}" for part in parts),
        )
    return found


def main() -> None:
    with reporting_errors():
        options = parse_options(Options, None, "benchmarks/concurrency.py")
        if options.json is not None:
            check_own_file(options.json)
        count = num_workers_for(options.episodes, options.workers)
        runs: dict[int, list[Run]] = {size: [] for size in options.sizes}
        with server(options.latency) as url, ProcessPool(count) as workers:
            for _ in range(options.rounds):
                for size in options.sizes:
                    runs[size].append(run(make_game("2048", size=size), url, workers, options))
        Console(width=None if sys.stdout.isatty() else 120).print(table(runs, options, count))
        if options.json is not None:
            numbers = {size: [asdict(one) for one in measured] for size, measured in runs.items()}
            write_own_json(options.json, numbers)


if __name__ == "__main__":
    main()
