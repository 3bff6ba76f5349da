"""Measure how much longer concurrent episodes take than the latency of the model server alone.

pip install -e .[bench,openai] && python -m benchmarks.concurrency --json concurrency.json

A server in a separate process answers every request after a fixed latency. `evaluate` plays all episodes concurrently
with the policy `openai`, so the ideal time is turns x latency. CPU times are measured per process. Drawing and encoding
are timed separately afterwards, on the same images.
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

from vlmgym.errors import UsageError
from vlmgym.evaluation import EpisodeRecord, evaluate
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy, image_url
from vlmgym.rollout.runner import run_async
from vlmgym.runs.files import check_own_file, write_own_json
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_game
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.workers.pool import ProcessPool, num_workers_for
from vlmgym.workers.process import exit_with_parent

ANSWERS = ("up", "left", "down", "right")
GOAL = 1.15


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play with a server of fixed latency and print the overhead."""

    sizes: tuple[int, ...] = (256, 640)
    """Image sizes in pixels to measure."""
    episodes: int = 64
    """Number of episodes, all played concurrently."""
    max_turns: int = 50
    """Turns per episode."""
    latency: float = 0.2
    """Seconds that the server takes to answer a request."""
    workers: int | None = None
    """Number of worker processes. Default: one per core."""
    rounds: int = 3
    """Number of runs per size."""
    json: Path | None = None
    """Write the results to this file."""

    def __post_init__(self) -> None:
        if min(self.episodes, self.max_turns, self.rounds, self.latency) <= 0:
            raise UsageError("episodes, max-turns, rounds and latency must be positive")


@dataclass(frozen=True, slots=True)
class Run:
    """Results of one run.

    Attributes:
        seconds: Wall-clock time.
        ideal: Wall-clock time without overhead, in seconds.
        turns: Total number of turns.
        main: CPU milliseconds of the main process per turn; the following attributes have the same unit.
        workers: CPU time of the worker processes.
        drawing: CPU time to draw an image.
        encoding: CPU time to encode an image.
    """

    seconds: float
    ideal: float
    turns: int
    main: float
    workers: float
    drawing: float
    encoding: float


# The server ----------------------------------------------------------------------------------------------------------


class FixedLatency(asyncio.Protocol):
    """Answers each request of a connection after a fixed time, with as little work as possible."""

    def __init__(self, latency: float, total: Any) -> None:
        self.latency, self.received, self.answered, self.total = latency, bytearray(), 0, total

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, body = self.received.partition(b"\r\n\r\n")
        if not blank:
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) == int(length.partition(b":")[2]):
            self.received.clear()
            asyncio.get_running_loop().call_later(self.latency, self.answer)

    def answer(self) -> None:
        text = f"<think>I slide.</think><answer>{ANSWERS[self.answered % len(ANSWERS)]}</answer>"
        self.answered += 1
        self.total.value += 1
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520}
        facts = {"id": "1", "object": "chat.completion", "created": 0, "model": "none"}
        body = json.dumps({**facts, "choices": [choice], "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


def serve(latency: float, port: Connection, total: Any) -> None:
    exit_with_parent()

    async def serving() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: FixedLatency(latency, total), "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serving())


@contextmanager
def server(latency: float) -> Iterator[tuple[str, Any]]:
    """Start a server; yield its address and a shared counter of the requests that it has answered."""
    context = multiprocessing.get_context("spawn")
    port, sender = context.Pipe(duplex=False)
    total = context.Value("q", 0, lock=False)
    process = context.Process(target=serve, args=(latency, sender, total), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.recv()}/v1", total
    finally:
        process.kill()
        process.join()


# Measuring -----------------------------------------------------------------------------------------------------------


def cpu(processes: list[psutil.Process]) -> float:
    """Return the total CPU seconds of processes."""
    cpu_times = [process.cpu_times() for process in processes]
    return float(sum(times.user + times.system for times in cpu_times))


def seconds_of(work: Callable[[Any], Any], items: list[Any]) -> float:
    start = time.perf_counter()
    for item in items:
        work(item)
    return time.perf_counter() - start


def run(game: Game[Any, Any], url: str, workers: ProcessPool, options: Options) -> Run:
    def play(turns: int) -> list[EpisodeRecord]:
        policy = OpenAIPolicy(OpenAIOptions(base_url=url, model="none", max_requests=options.episodes))
        count = options.episodes
        return evaluate(game, policy, count, max_turns=turns, concurrency=count, workers=workers)

    play(1)  # let workers import the game
    main_process = [psutil.Process()]
    worker_processes = [psutil.Process(pid) for pid in {*run_async(process_ids(workers))} - {main_process[0].pid}]
    before = cpu(main_process), cpu(worker_processes)
    start = time.perf_counter()
    records = play(options.max_turns)
    seconds = time.perf_counter() - start
    cpu_seconds = cpu(main_process) - before[0], cpu(worker_processes) - before[1]
    turns = check(records, options)
    states = [game.from_data(turn.state) for record in records[:8] for turn in record.turns]
    images = [game.draw(state) for state in states]
    drawing = seconds_of(game.draw, states) / len(states)
    encoding = seconds_of(image_url, images) / len(images)
    milliseconds = (1e3 * part for part in (cpu_seconds[0] / turns, cpu_seconds[1] / turns, drawing, encoding))
    return Run(seconds, options.max_turns * options.latency, turns, *milliseconds)


async def process_ids(workers: ProcessPool) -> list[int]:
    await workers.start()
    return await asyncio.gather(*(workers.call(nap_and_return_pid) for _ in range(4 * workers.count)))


def nap_and_return_pid() -> int:
    time.sleep(0.02)
    return os.getpid()


def check(records: list[EpisodeRecord], options: Options) -> int:
    """Return the total number of turns; raise `UsageError` if an episode ended early."""
    turns = sum(len(record.turns) for record in records)
    if turns != options.episodes * options.max_turns:
        raise UsageError("an episode ended before the turn limit: reduce --max-turns")
    return turns


def table(runs: dict[int, list[Run]], options: Options, workers: int) -> Table:
    work = f"{options.episodes} concurrent episodes of 2048, {options.max_turns} turns"
    summary = Table(title=f"{work}, {options.latency:g} s per request, {workers} workers")
    for column in ("image", "seconds / ideal: median", "best", "worst", "turns/s"):
        summary.add_column(column, justify="right")
    for column in ("main process", "workers", "drawing", "encoding"):
        summary.add_column(f"{column}, CPU ms per turn", justify="right")
    for size, results in runs.items():
        ratios = [result.seconds / result.ideal for result in results]
        rate = statistics.median(result.turns / result.seconds for result in results)
        ratio = statistics.median(ratios)
        parts = (statistics.median(getattr(result, part) for result in results)
                 for part in ("main", "workers", "drawing", "encoding"))  # fmt: skip
        goal = "" if ratio <= GOAL else f" (goal: {GOAL})"
        summary.add_row(
            f"{size} x {size}",
            f"{ratio:.3f}{goal}",
            f"{min(ratios):.3f}",
            f"{max(ratios):.3f}",
            f"{rate:.0f}",
            *(f"{part:.2f}" for part in parts),
        )
    return summary


def main() -> None:
    with reporting_errors():
        options = parse_options(Options, None, "python -m benchmarks.concurrency")
        if options.json is not None:
            check_own_file(options.json)
        count = num_workers_for(options.episodes, options.workers)
        runs: dict[int, list[Run]] = {size: [] for size in options.sizes}
        with server(options.latency) as (url, _), ProcessPool(count) as workers:
            for _ in range(options.rounds):
                for size in options.sizes:
                    runs[size].append(run(make_game("2048", size=size), url, workers, options))
        Console(width=None if sys.stdout.isatty() else 120).print(table(runs, options, count))
        if options.json is not None:
            numbers = {size: [asdict(result) for result in results] for size, results in runs.items()}
            write_own_json(options.json, numbers)


if __name__ == "__main__":
    main()
