"""`vlmgym bench-model`: measure latency and throughput of a model server with game images."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from vlmgym.checks import check_int
from vlmgym.errors import InfrastructureError, UsageError
from vlmgym.policies.chat_api import image_url
from vlmgym.policies.checkpoint import DType, resolve_checkpoint
from vlmgym.policies.openai import OpenAIPolicy
from vlmgym.policies.openai_options import OPENAI, OpenAIOptions
from vlmgym.policies.transformers import import_local_model
from vlmgym.records.episode import GameRecord
from vlmgym.records.files import check_own_file, write_own_json
from vlmgym.rollout.event_loop import run_all, run_async
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.options import GameOptions

if TYPE_CHECKING:
    from vlmgym.policies.local_model import LocalModel
    from vlmgym.policies.openai_client import StreamTiming

MOVES = 20
"""Upper bound of the number of random moves before a state."""


@dataclass(frozen=True, kw_only=True)
class BenchModelConfig(GameOptions):
    """Measure a model server with game images or a prompt: time to first token, tokens and requests/s."""

    base_url: str = OPENAI
    """Base URL of the server, such as http://localhost:8000/v1."""
    model: str = ""
    """Model name on the server."""
    api_key_env: str | None = None
    """Environment variable with the API key. None means OPENAI_API_KEY for OpenAI, no key for other servers."""
    extra_body: str = "{}"
    """Additional request fields, as a JSON object."""
    timeout: float = 600.0
    """Timeout of a request in seconds."""
    game: str = "2048"
    """Game whose images and prompts are sent; no image is sent twice."""
    concurrency: tuple[int, ...] = (1, 8, 32)
    """Concurrency levels to measure."""
    seconds: float = 10.0
    """Seconds per measurement, after a warm-up."""
    max_tokens: int = 128
    """Maximum response length in tokens."""
    ignore_eos: bool = False
    """Generate exactly max_tokens tokens per response, for comparable results (vLLM and SGLang only)."""
    against: str | None = None
    """Checkpoint folder: also measure it with transformers in this process, with equal batch sizes."""
    device: str | None = None
    """Device for transformers, such as cuda:1. None means a GPU if available."""
    dtype: DType = "auto"
    """Dtype for transformers; auto uses the checkpoint's. Should match the server."""
    prompt: str | None = None
    """Instead of game images, send this text --runs times, one at a time, after a warm-up.
    A server that caches prompts reads it only once."""
    runs: int = 10
    """Number of times --prompt is sent."""
    output: Path | None = None
    """JSON file for all measurements."""

    def __post_init__(self) -> None:
        check_int("runs", self.runs, 2)
        if self.prompt is not None and not self.prompt.strip():
            raise UsageError("--prompt must not be empty")
        if self.prompt is None and self.runs != BenchModelConfig.runs:
            raise UsageError("--runs only applies to --prompt: remove it, or add --prompt")
        for name in ("game", "concurrency", "seconds", *(field.name for field in fields(GameOptions))):
            if self.prompt is not None and getattr(self, name) != getattr(BenchModelConfig, name):
                option = "config" if name == "overrides" else name
                raise UsageError(f"--{option} only applies to game images: remove it or --prompt")
        if not self.concurrency or min(self.concurrency) < 1:
            raise UsageError(f"every number in concurrency must be at least 1, got {self.concurrency}")
        if not 0 < self.seconds < float("inf"):
            raise UsageError(f"seconds must be a number above 0, got {self.seconds}")

    def server(self) -> OpenAIOptions:
        """Server options: greedy sampling and no request limit."""
        asked = OpenAIOptions(
            base_url=self.base_url,
            model=self.model,
            api_key_env=self.api_key_env,
            extra_body=self.extra_body,
            timeout=self.timeout,
            temperature=0.0,
            max_tokens=self.max_tokens,
            max_requests=max(self.concurrency),
        )
        if not self.ignore_eos:
            return asked
        return replace(asked, extra_body=json.dumps({**asked.extra_fields, "ignore_eos": True}))


@dataclass(frozen=True, slots=True)
class Speed:
    """Measurements at a number of concurrent requests, or with batches of that size.

    Times are medians in seconds, except the 95th percentile of the first token (None without streaming). Rates are of
    all requests together, at full concurrency. Tokens are means per request, images included.
    """

    concurrency: int
    requests: int
    first_token: float | None
    first_token_p95: float | None
    latency: float
    tokens_per_second: float
    requests_per_second: float
    prompt_tokens: float
    completion_tokens: float


@dataclass(frozen=True, slots=True)
class ModelSpeeds:
    """All measurements of the server and, if requested, of transformers."""

    server: tuple[Speed, ...]
    transformers: tuple[Speed, ...] = ()


def bench_model(config: BenchModelConfig, console: Console | None = None) -> ModelSpeeds:
    """Measure a server, print a table and write the output file.

    Failed requests are not retried, which would distort the results.
    """
    console = console or Console()
    game = config.make_game(config.game)
    policy, load = prepare(config)
    levels = sorted(set(config.concurrency))
    server: list[Speed] = []
    transformers: list[Speed] = []
    seeds = itertools.count()
    model = load() if load else None
    # Alternate between the two, so that other load affects both equally.
    for concurrency in track(levels, "concurrency levels", console=Console(stderr=True), transient=True):
        server.append(run_async(_measure_server(policy, game, seeds, concurrency, config.seconds)))
        if model is not None:
            transformers.append(_measure_local(model, config, game, concurrency))
    speeds = ModelSpeeds(tuple(server), tuple(transformers))
    _print(speeds, config, console)
    if config.output is not None:
        record = GameRecord.of(game).model_dump(mode="json")
        found = {"game": record, "seconds": config.seconds, "speeds": asdict(speeds)}
        write_own_json(config.output, describe(config) | found)
    return speeds


def prepare(config: BenchModelConfig) -> tuple[OpenAIPolicy, Callable[[], LocalModel] | None]:
    """Create the policy and the function that loads transformers' model; check the output file."""
    policy, load = OpenAIPolicy(config.server()), None
    if config.against is not None:
        local_model, checkpoint = import_local_model("--against"), resolve_checkpoint(config.against, "transformers")
        load = partial(local_model, checkpoint, config.device, config.dtype)
    if config.output is not None:
        check_own_file(config.output)
        if not config.output.absolute().parent.is_dir():
            raise UsageError(f"cannot write {config.output}: the folder {config.output.parent} does not exist")
    return policy, load


def describe(config: BenchModelConfig) -> dict[str, Any]:
    """Describe what was measured, and when, for the output file."""
    server = config.server()
    return {
        "measured": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "server": {"base_url": server.address, "model": server.model, "extra_body": server.extra_fields},
        "max_tokens": config.max_tokens,
        "ignore_eos": config.ignore_eos,
        "against": config.against,
    }


def _question(game: Game[Any, Any], seed: int) -> tuple[list[ImageArray], str]:
    """Return images and prompt of a state after random moves."""
    rng = np.random.default_rng(seed)
    state = game.start(rng)
    for _ in range(seed % MOVES):
        actions = game.legal_actions(state)
        if not actions:
            break
        state = game.step(state, actions[int(rng.integers(len(actions)))], rng).state
    return list(game.images(state)), game.instructions(state)


async def _measure_server(
    policy: OpenAIPolicy, game: Game[Any, Any], seeds: Iterator[int], concurrency: int, seconds: float
) -> Speed:
    """Keep `concurrency` requests in flight for `seconds`."""

    def encoded(seed: int) -> tuple[list[str], str]:
        images, prompt = _question(game, seed)
        return [image_url("png", image) for image in images], prompt

    async def send(until: float) -> list[StreamTiming]:
        streamed: list[StreamTiming] = []
        while not streamed or time.perf_counter() < until:
            shown, prompt = await asyncio.to_thread(encoded, next(seeds))
            streamed.append(await policy.stream(shown, prompt))
        return streamed

    await policy.begin_run()
    try:
        await run_all(send(0.0) for _ in range(concurrency))  # warm up connections and caches
        begun = time.perf_counter()
        streams = await run_all(send(begun + seconds) for _ in range(concurrency))
    finally:
        await policy.end_run()
    end = min(streamed[-1].ended for streamed in streams)  # full concurrency until here
    return _speed(concurrency, list(itertools.chain(*streams)), begun, end)


def _speed(concurrency: int, streamed: Sequence[StreamTiming], begin: float, end: float) -> Speed:
    """Compute rates over a window; requests that end later count in part."""
    tokens = requests = 0.0
    for one in streamed:
        requests += _share(one.sent, one.ended, begin, end)
        tokens += one.completion_tokens * _share(one.first, one.ended, begin, end)
    waits = sorted(one.first - one.sent for one in streamed)
    return Speed(
        concurrency=concurrency,
        requests=len(streamed),
        first_token=statistics.median(waits),
        first_token_p95=float(np.quantile(waits, 0.95)),
        latency=statistics.median(one.ended - one.sent for one in streamed),
        tokens_per_second=tokens / (end - begin),
        requests_per_second=requests / (end - begin),
        prompt_tokens=statistics.fmean(one.prompt_tokens for one in streamed),
        completion_tokens=statistics.fmean(one.completion_tokens for one in streamed),
    )


def _share(begin: float, end: float, window_begin: float, window_end: float) -> float:
    """Return the fraction of an interval inside a window."""
    if end <= begin:
        return float(window_begin <= end <= window_end)
    return max(0.0, min(end, window_end) - max(begin, window_begin)) / (end - begin)


def _measure_local(model: Any, config: BenchModelConfig, game: Game[Any, Any], concurrency: int) -> Speed:
    """Generate batches for `seconds`."""
    from vlmgym.policies.local_model import GenerationRequest

    seeds = itertools.count()
    times: list[float] = []
    replies: list[Any] = []
    while sum(times[1:]) < config.seconds or len(times) < 2:  # the first is a warm-up
        shown = [_question(game, next(seeds)) for _ in range(concurrency)]
        batch = [GenerationRequest(images, prompt) for images, prompt in shown]
        begun = time.perf_counter()
        answered = model.generate(batch, config.max_tokens, temperature=0.0, ignore_eos=config.ignore_eos)
        times.append(time.perf_counter() - begun)
        for reply in answered:
            if isinstance(reply, InfrastructureError):
                raise reply
        replies = answered if len(times) == 1 else [*replies, *answered]
    counted = replies[concurrency:]
    tokens = [reply.completion_tokens for reply in counted]
    return Speed(
        concurrency=concurrency,
        requests=len(counted),
        first_token=None,
        first_token_p95=None,
        latency=statistics.median(times[1:]),
        tokens_per_second=sum(tokens) / sum(times[1:]),
        requests_per_second=len(counted) / sum(times[1:]),
        prompt_tokens=statistics.fmean(reply.prompt_tokens for reply in counted),
        completion_tokens=statistics.fmean(tokens),
    )


def _print(speeds: ModelSpeeds, config: BenchModelConfig, console: Console) -> None:
    prompt = statistics.fmean(speed.prompt_tokens for speed in speeds.server)
    response = statistics.fmean(speed.completion_tokens for speed in speeds.server)
    title = f"{config.model}, images of {config.game}: {prompt:,.0f} tokens in, {response:,.0f} out"
    columns = ["concurrency", "first token (95%)", "request", "tok/s", "req/s"]
    caption = "Times in seconds: median (95th percentile)."
    if speeds.transformers:
        columns += ["transformers", "ratio"]
        caption += " transformers: tok/s at equal batch size; ratio: server / transformers."
    table = Table(*columns, title=title, caption=caption)
    for i, speed in enumerate(speeds.server):
        row = [
            str(speed.concurrency),
            f"{speed.first_token:.3f} ({speed.first_token_p95:.3f})",
            f"{speed.latency:.3f}",
            f"{speed.tokens_per_second:,.0f}",
            f"{speed.requests_per_second:,.1f}",
        ]
        if speeds.transformers:
            other = speeds.transformers[i].tokens_per_second
            row += [f"{other:,.0f}", f"{speed.tokens_per_second / other:.1f}"]
        table.add_row(*row)
    console.print(table)
