"""`vlmgym bench-model --prompt`: repeat one prompt, and measure server and transformers side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from vlmgym.cli.bench_model import BenchModelConfig, bench_model, describe, prepare
from vlmgym.errors import InfrastructureError
from vlmgym.records.files import write_own_json
from vlmgym.rollout.event_loop import run_async

if TYPE_CHECKING:
    from vlmgym.policies.local_model import LocalModel
    from vlmgym.policies.openai import OpenAIPolicy
    from vlmgym.policies.openai_client import StreamTiming


@dataclass(frozen=True, slots=True)
class Statistic:
    """Mean and sample standard deviation of the runs."""

    mean: float
    stdev: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Statistic:
        """Compute them from at least two values."""
        return cls(statistics.fmean(values), statistics.stdev(values))


@dataclass(frozen=True, slots=True)
class PromptSpeed:
    """Measurements of runs, one at a time.

    Attributes:
        first_token: Seconds to the first token.
        tokens_per_second: Response tokens over the whole time of a run.
        steady_tokens_per_second: Response tokens after the first over the time after the first. None if a response
            has fewer than two tokens, or no text.
        prompt_tokens: Mean tokens of the prompt.
        completion_tokens: Mean tokens of the responses.
    """

    first_token: Statistic
    tokens_per_second: Statistic
    steady_tokens_per_second: Statistic | None
    prompt_tokens: float
    completion_tokens: float

    @classmethod
    def of(cls, runs: Sequence[StreamTiming]) -> PromptSpeed:
        """Summarise at least two runs."""
        steady = all(run.completion_tokens > 1 and run.ended > run.first for run in runs)
        rates = [(run.completion_tokens - 1) / (run.ended - run.first) for run in runs] if steady else []
        return cls(
            first_token=Statistic.of([run.first - run.sent for run in runs]),
            tokens_per_second=Statistic.of([run.completion_tokens / (run.ended - run.sent) for run in runs]),
            steady_tokens_per_second=Statistic.of(rates) if steady else None,
            prompt_tokens=statistics.fmean(run.prompt_tokens for run in runs),
            completion_tokens=statistics.fmean(run.completion_tokens for run in runs),
        )


@dataclass(frozen=True, slots=True)
class PromptSpeeds:
    """All measurements of the server and, if requested, of transformers."""

    server: PromptSpeed
    transformers: PromptSpeed | None = None


def bench_images_or_prompt(config: BenchModelConfig) -> None:
    """Run `vlmgym bench-model`."""
    (bench_model if config.prompt is None else bench_prompt)(config)


def bench_prompt(config: BenchModelConfig, console: Console | None = None) -> PromptSpeeds:
    """Measure a server with `config.prompt`, print a table and write the output file."""
    policy, load = prepare(config)
    server, local = run_async(_measure(policy, load() if load else None, config))
    speeds = PromptSpeeds(PromptSpeed.of(server), PromptSpeed.of(local) if local else None)
    _print(speeds, config, console or Console())
    if config.output is not None:
        found = {"prompt": config.prompt, "runs": config.runs, "speeds": asdict(speeds)}
        write_own_json(config.output, describe(config) | found)
    return speeds


async def _measure(
    policy: OpenAIPolicy, model: LocalModel | None, config: BenchModelConfig
) -> tuple[list[StreamTiming], list[StreamTiming]]:
    """Alternate between the two, so that other load affects both equally; the first run of each is a warm-up."""
    prompt = config.prompt or ""
    server: list[StreamTiming] = []
    local: list[StreamTiming] = []
    await policy.begin_run()
    try:
        for _ in track(range(config.runs + 1), "runs", console=Console(stderr=True), transient=True):
            server.append(await policy.stream([], prompt))
            if model is not None:
                local.append(_generate(model, prompt, config))
    finally:
        await policy.end_run()
    return server[1:], local[1:]


def _generate(model: LocalModel, prompt: str, config: BenchModelConfig) -> StreamTiming:
    """Time the tokens of one response of transformers."""
    from vlmgym.policies.local_model import GenerationRequest
    from vlmgym.policies.openai_client import StreamTiming

    tokens: list[float] = []
    sent = time.perf_counter()
    (reply,) = model.generate(
        [GenerationRequest([], prompt)],
        config.max_tokens,
        temperature=0.0,
        ignore_eos=config.ignore_eos,
        on_token=lambda: tokens.append(time.perf_counter()),
    )
    if isinstance(reply, InfrastructureError):
        raise reply
    return StreamTiming(sent, tokens[0], tokens[-1], reply.prompt_tokens or 0, reply.completion_tokens or 0)


def _print(speeds: PromptSpeeds, config: BenchModelConfig, console: Console) -> None:
    server, other = speeds.server, speeds.transformers
    title = f"{config.model}: {server.prompt_tokens:,.0f} tokens in, {server.completion_tokens:,.0f} out"
    caption = f"Means ± standard deviations of {config.runs} runs, one at a time."
    if other is not None:
        caption += " ratio: server / transformers."
    table = Table("", "server", *(["transformers", "ratio"] if other else []), title=title, caption=caption)
    for label, name, form in (
        ("time to first token (s)", "first_token", ".3f"),
        ("tok/s", "tokens_per_second", ",.1f"),
        ("tok/s after the first token", "steady_tokens_per_second", ",.1f"),
    ):
        found: list[Statistic | None] = [getattr(speed, name) for speed in (server, other) if speed is not None]
        row = ["-" if one is None else f"{one.mean:{form}} ± {one.stdev:{form}}" for one in found]
        if other is not None:
            one, two = found
            row.append("-" if one is None or two is None else f"{one.mean / two.mean:.2f}")
        table.add_row(label, *row)
    console.print(table)
