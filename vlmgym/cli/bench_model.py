"""`vlmgym bench-model`: measure a model server with game images or a prompt, without retries: first token, tokens and
requests/s.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy, image_url
from vlmgym.rollout.runner import run_all, run_async
from vlmgym.runs.files import check_own_file, write_own_json
from vlmgym.runs.record import GameRecord
from vlmgym.sandbox.core.game import Game, ImageArray, pick
from vlmgym.sandbox.options import GameOptions

if TYPE_CHECKING:
    from vlmgym.policies.openai.client import StreamTiming

MOVES = 20
"""Exclusive upper bound on the number of random moves that lead to a state."""
MEASURES = (
    ("first token (s)", "first_token", ".3f"),
    ("request (s)", "latency", ".3f"),
    ("tok/s of a request", "request_tokens_per_second", ",.1f"),
    ("tok/s after the first token", "steady_tokens_per_second", ",.1f"),
    ("tok/s of all requests", "tokens_per_second", ",.1f"),
    ("req/s", "requests_per_second", ",.1f"),
)
"""Rows of the table: label, field of `Speed` and format."""
Question = Callable[[], tuple[list[ImageArray], str]]
"""Function that returns images and a prompt."""


@dataclass(frozen=True, kw_only=True)
class BenchModelConfig(GameOptions):
    """Options of `vlmgym bench-model`."""

    server: Annotated[OpenAIOptions, tyro.conf.arg(name="")] = field(
        default_factory=lambda: OpenAIOptions(temperature=0.0, max_tokens=128)
    )
    game: str = "2048"
    """Game whose images and prompts are sent; no image is sent twice."""
    concurrency: tuple[int, ...] = (1, 8, 32)
    """Concurrency levels to measure."""
    seconds: float = 10.0
    """Seconds per measurement, after a warm-up."""
    prompt: str | None = None
    """Instead of game images, send this text --runs times, one at a time, after a warm-up.
    A server that caches prompts reads it only once."""
    runs: int = 10
    """Number of times --prompt is sent."""
    output: Path | None = None
    """JSON file for all measurements."""

    def __post_init__(self) -> None:
        check_int("runs", self.runs, 2)
        if not self.concurrency or min(self.concurrency) < 1:
            raise UsageError(f"every number in concurrency must be at least 1, got {self.concurrency}")
        if not 0 < self.seconds < float("inf"):
            raise UsageError(f"seconds must be a number above 0, got {self.seconds}")

    @property
    def levels(self) -> list[int]:
        """Concurrency levels in order; only 1 with `--prompt`."""
        return sorted(set(self.concurrency)) if self.prompt is None else [1]

    def more(self, requests: int, begun: float) -> bool:
        """Return whether a measurement that began at time `begun` continues after `requests` sequential requests."""
        if self.prompt is not None:
            return requests < self.runs
        return not requests or time.perf_counter() < begun + self.seconds


@dataclass(frozen=True, slots=True)
class Statistic:
    """Mean, sample standard deviation, median and 95th percentile over requests."""

    mean: float
    stdev: float
    median: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Statistic:
        """Compute the statistics of at least one value; the standard deviation of a single value is 0."""
        stdev = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), stdev, statistics.median(values), float(np.quantile(values, 0.95)))


@dataclass(frozen=True, slots=True)
class Speed:
    """Measurements at a number of concurrent requests.

    Attributes:
        concurrency: Number of concurrent requests.
        requests: Number of requests measured.
        first_token: Time to the first token of a request, in seconds.
        latency: Duration of a request, in seconds.
        request_tokens_per_second: Response tokens of a request, divided by the duration of the request.
        steady_tokens_per_second: Response tokens of a request after the first token, divided by the time after the
            first token. None if any response has fewer than two tokens, or no text.
        tokens_per_second: Response tokens of all requests per second, while all concurrent requests were running.
        requests_per_second: Requests per second, while all concurrent requests were running.
        prompt_tokens: Mean number of tokens of a prompt, images included.
        completion_tokens: Mean number of tokens of a response.
    """

    concurrency: int
    requests: int
    first_token: Statistic
    latency: Statistic
    request_tokens_per_second: Statistic
    steady_tokens_per_second: Statistic | None
    tokens_per_second: float
    requests_per_second: float
    prompt_tokens: float
    completion_tokens: float

    @classmethod
    def of(cls, concurrency: int, timings: Sequence[StreamTiming], begin: float, end: float) -> Speed:
        """Summarise requests.

        The rates of all requests together are computed from `begin` to `end`; if a request ends later, only the part
        before `end` counts.
        """
        tokens = sum(timing.completion_tokens * _share(timing.first, timing.ended, begin, end) for timing in timings)
        steady = all(timing.completion_tokens > 1 and timing.ended > timing.first for timing in timings)
        rates = [(timing.completion_tokens - 1) / (timing.ended - timing.first) for timing in timings] if steady else []
        return cls(
            concurrency=concurrency,
            requests=len(timings),
            first_token=Statistic.of([timing.first - timing.sent for timing in timings]),
            latency=Statistic.of([timing.ended - timing.sent for timing in timings]),
            request_tokens_per_second=Statistic.of(
                [timing.completion_tokens / (timing.ended - timing.sent) for timing in timings]
            ),
            steady_tokens_per_second=Statistic.of(rates) if steady else None,
            tokens_per_second=tokens / (end - begin),
            requests_per_second=sum(_share(timing.sent, timing.ended, begin, end) for timing in timings)
            / (end - begin),
            prompt_tokens=statistics.fmean(timing.prompt_tokens for timing in timings),
            completion_tokens=statistics.fmean(timing.completion_tokens for timing in timings),
        )


def _share(begin: float, end: float, window_begin: float, window_end: float) -> float:
    """Return the fraction of an interval that lies inside a window."""
    if end <= begin:
        return float(window_begin <= end <= window_end)
    return max(0.0, min(end, window_end) - max(begin, window_begin)) / (end - begin)


def bench_model(config: BenchModelConfig) -> list[Speed]:
    """Measure a server, print a table and write the output file.

    Failed requests are not retried, because retries would distort the results.
    """
    policy = OpenAIPolicy(config.server)
    if config.output is not None:
        check_own_file(config.output)
    source: dict[str, Any] = {"prompt": config.prompt, "runs": config.runs}
    questions: Iterator[Question] = itertools.repeat(lambda: ([], config.prompt or ""))
    if config.prompt is None:
        game = config.make_game(config.game)
        source = {"game": GameRecord.of(game).model_dump(mode="json"), "seconds": config.seconds}
        questions = (partial(_draw, game, seed) for seed in itertools.count())
    levels = track(config.levels, "concurrency levels", console=Console(stderr=True), transient=True)
    # An error would leave the progress bar of the generator open until it is collected.
    with closing(levels):  # type: ignore[type-var]
        speeds = [run_async(_measure(policy, config, questions, concurrency)) for concurrency in levels]
    _print(speeds, config)
    if config.output is not None:
        measured = datetime.now(timezone.utc).isoformat(timespec="seconds")
        measurement = {"measured": measured, "server": config.server.to_dict()}
        write_own_json(config.output, measurement | source | {"speeds": list(map(asdict, speeds))})
    return speeds


def _draw(game: Game[Any, Any], seed: int) -> tuple[list[ImageArray], str]:
    """Return the images and prompt of a state reached by random moves."""
    rng = np.random.default_rng(seed)
    state = game.start(rng)
    for _ in range(seed % MOVES):
        actions = game.legal_actions(state)
        if not actions:
            break
        state = game.step(state, pick(rng, actions), rng).state
    return list(game.images(state)), game.instructions(state)


async def _measure(
    policy: OpenAIPolicy, config: BenchModelConfig, questions: Iterator[Question], concurrency: int
) -> Speed:
    """Measure the server with `concurrency` requests in flight, after as many warm-up requests."""

    def encoded(question: Question) -> tuple[list[str], str]:
        images, prompt = question()
        return [image_url(image) for image in images], prompt

    async def send(begun: float | None) -> list[StreamTiming]:
        timings: list[StreamTiming] = []
        while not timings or (begun is not None and config.more(len(timings), begun)):
            images, prompt = await asyncio.to_thread(encoded, next(questions))
            timings.append(await policy.stream(images, prompt))
        return timings

    await policy.begin_run()
    try:
        await run_all(send(None) for _ in range(concurrency))  # warm up connections and caches
        begun = time.perf_counter()
        streams = await run_all(send(begun) for _ in range(concurrency))
    finally:
        await policy.end_run()
    end = min(timings[-1].ended for timings in streams)  # full concurrency until here
    return Speed.of(concurrency, list(itertools.chain(*streams)), begun, end)


def _print(speeds: Sequence[Speed], config: BenchModelConfig) -> None:
    prompt = statistics.fmean(speed.prompt_tokens for speed in speeds)
    response = statistics.fmean(speed.completion_tokens for speed in speeds)
    shown = "one prompt" if config.prompt is not None else f"images of {config.game}"
    title = f"{config.server.model}, {shown}: {prompt:,.0f} tokens in, {response:,.0f} out"
    caption = "Medians (95th percentiles)."
    if config.prompt is not None:
        caption = f"Means ± standard deviations of {config.runs} runs, one at a time."
    table = Table("concurrency", *(str(speed.concurrency) for speed in speeds), title=title, caption=caption)
    for label, name, form in MEASURES:
        table.add_row(label, *(_cell(getattr(speed, name), form, config) for speed in speeds))
    Console().print(table)


def _cell(value: Statistic | float | None, form: str, config: BenchModelConfig) -> str:
    if not isinstance(value, Statistic):
        return "-" if value is None else format(value, form)
    if config.prompt is None:
        return f"{value.median:{form}} ({value.p95:{form}})"
    return f"{value.mean:{form}} ± {value.stdev:{form}}"
