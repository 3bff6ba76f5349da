"""Compare the time of whole evaluations by vlmgym, a hand-written loop (`plain_loop.py`), Inspect and verifiers.

bash setup.sh --integrations && pip install -e .[bench,openai] && python -m benchmarks.evaluation_peers

The command of each tool plays episodes of 2048, all concurrently, with a model server of fixed latency
(`benchmarks/concurrency.py`). Times include starting the command and writing its records. CPU times include all
processes of the command. Server, images and prompts are the same; the loop neither retries nor resumes.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.concurrency import server
from vlmgym.errors import UsageError
from vlmgym.terminal import parse_options, reporting_errors

Tool = Literal["vlmgym", "loop", "inspect", "verifiers"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Evaluate with each tool in turn, and print wall-clock and CPU times."""

    tools: tuple[Tool, ...] = ("vlmgym", "loop", "inspect", "verifiers")
    """Tools to compare."""
    episodes: int = 64
    """Number of episodes, all played concurrently."""
    max_turns: int = 20
    """Turns per episode."""
    size: int = 256
    """Image size in pixels."""
    latency: float = 0.2
    """Seconds that the server takes to answer a request."""
    rounds: int = 3
    """Number of runs per tool."""


@dataclass(frozen=True, slots=True)
class Run:
    """Wall-clock and CPU seconds of one evaluation."""

    seconds: float
    cpu: float


def command(tool: Tool, options: Options, url: str, folder: Path) -> list[str]:
    """Return the command with which a tool evaluates the model at `url` and writes its results to `folder`."""
    count, turns, size = map(str, (options.episodes, options.max_turns, options.size))
    if tool == "vlmgym":
        arguments = f"eval 2048 --policy openai --model none --size {size} --episodes {count} --max-turns {turns}"
        limits = f"--concurrency {count} --max-requests {count} --videos 0 --no-report"
        files = ["--base-url", url, "--output-dir", str(folder)]
        return [sys.executable, "-m", "vlmgym", *arguments.split(), *limits.split(), *files]
    if tool == "loop":
        return [sys.executable, "-m", "benchmarks.plain_loop", url, count, turns, size, str(folder)]
    if tool == "inspect":
        arguments = f"eval vlmgym/2048 --model openai-api/local/none -T size={size} -T episodes={count}"
        limits = f"-T max_turns={turns} --max-connections {count} --max-samples {count} --display none"
        files = ["--log-dir", str(folder)]
        return [".venv-integrations/bin/inspect", *arguments.split(), *limits.split(), *files]
    settings = json.dumps({"size": options.size, "max_turns": options.max_turns})
    arguments = (
        f"vlmgym-verifiers --model none --env.taskset.episodes {count} -n {count} -c {count} --no-rich --no-push"
    )
    files = ["--env.taskset.settings", settings, "--client.base-url", url, "--output-dir", str(folder)]
    return [".venv-verifiers/bin/vf-eval", *arguments.split(), *files]


def run(tool: Tool, options: Options, url: str, answers: Any) -> Run:
    keys = {"LOCAL_BASE_URL": url, "LOCAL_API_KEY": "none", "OPENAI_API_KEY": "none"}
    with tempfile.TemporaryDirectory() as folder:
        words = command(tool, options, url, Path(folder) / "run")
        if not Path(words[0]).exists():
            raise UsageError(f"there is no {words[0]}: run bash setup.sh --integrations in the clone, and start there")
        answers_before = answers.value
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.run(words, env=os.environ | keys, capture_output=True, text=True, check=False)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode or answers.value - answers_before != options.episodes * options.max_turns:
        raise UsageError(f"{tool} failed: {(process.stderr or process.stdout)[-2000:]}")
    return Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def table(runs: dict[Tool, list[Run]], options: Options) -> Table:
    turns = options.episodes * options.max_turns
    work = f"{options.episodes} concurrent episodes of 2048, {options.max_turns} turns, {options.size} x {options.size}"
    summary = Table("", title=f"{work}, {options.latency:g} s per request, medians of {options.rounds} runs")
    for column in ("seconds", "turns/s", "CPU ms per turn"):
        summary.add_column(column, justify="right")
    for tool, results in runs.items():
        seconds, cpu = (statistics.median(getattr(result, name) for result in results) for name in ("seconds", "cpu"))
        summary.add_row(tool, f"{seconds:.1f}", f"{turns / seconds:.0f}", f"{1e3 * cpu / turns:.1f}")
    return summary


def main() -> None:
    with reporting_errors():
        options = parse_options(Options, None, "python -m benchmarks.evaluation_peers")
        runs: dict[Tool, list[Run]] = {tool: [] for tool in options.tools}
        with server(options.latency) as (url, answers):
            for _ in range(options.rounds):
                for tool in options.tools:
                    runs[tool].append(run(tool, options, url, answers))
        Console(width=None if sys.stdout.isatty() else 120).print(table(runs, options))


if __name__ == "__main__":
    main()
