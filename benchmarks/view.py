"""Measure `vlmgym view` with many runs, in a browser.

python -m benchmarks.view

Writes 1,000 runs of 20 episodes, and one run of 20,000 single-turn episodes, into a temporary folder; prints how long
the pages take from the request to the first row of their list, from a cold server and again. It needs Chromium.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser import chromium
from tests.playing import save_run
from vlmgym.cli.eval import run_evaluation
from vlmgym.evaluation import EvalConfig, evaluate
from vlmgym.evaluation.summary import updated_summary
from vlmgym.runs.record import EpisodeRecord
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import open_run
from vlmgym.terminal import parse_options, reporting_errors

RUNS, EPISODES = 1000, 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the pages of many runs."""

    picture: Path | None = None
    """Write a PNG of the list of a few runs there instead, such as assets/view.png."""


def write_run(folder: Path, episodes: Sequence[EpisodeRecord], count: int) -> None:
    """Save `count` episodes as a run, with its summary."""
    save_run(folder, [episodes[seed % len(episodes)].model_copy(update={"seed": seed}) for seed in range(count)])
    RunFolder(folder).write_summary(updated_summary(open_run(folder)))


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[tuple[str, str]]:
    """Serve a folder; yield the address without its query, and the query with the token."""
    command = [sys.executable, "-m", "vlmgym", "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as server:
        assert server.stdout is not None
        base, token = server.stdout.readline().split()[1].split("?")
        try:
            yield base, token
        finally:
            server.terminate()


def measure(folder: Path, path: str, row: str, label: str) -> None:
    """Print the seconds from the request of a page to its first row, for a cold server and again."""
    with served(folder) as (base, token), chromium() as browser, browser.new_page() as page:
        seconds = []
        for query in (f"{path}&{token}", path):
            page.goto("about:blank")
            start = time.perf_counter()
            page.goto(f"{base}{query}#episodes")
            page.wait_for_selector(row)
            seconds.append(time.perf_counter() - start)
    print(f"{label:40} {seconds[0]:6.2f} s first, {seconds[1]:6.2f} s again")


def write_picture(path: Path, root: Path) -> None:
    """Write a PNG of the list of some runs."""
    for policy in ("random", "random-legal", "oracle"):
        options = EvalConfig(policy=policy, episodes=20, max_turns=30, output_dir=root / "logs" / policy, report=False)
        run_evaluation(["2048", "shisensho", "swap"], replace(options, videos=0))
    with served(root / "logs", HOME=str(root)) as (base, token), chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 640})
        page.goto(f"{base}?{token}")
        page.wait_for_selector("#runs tbody tr")
        page.screenshot(path=path)


def main(options: Options) -> None:
    """Write the runs and measure, or write the picture."""
    with TemporaryDirectory(prefix="vlmgym-view-") as root:
        if options.picture is not None:
            write_picture(options.picture, Path(root))
            return
        list_folder, run_folder = Path(root) / "many", Path(root) / "large"
        games = evaluate("2048", "random", 5, max_turns=20, workers=0)
        questions = evaluate("scenes-questions", "random", 5, workers=0)
        for number in range(RUNS):
            write_run(list_folder / f"run-{number}", games, EPISODES)
        write_run(run_folder / "run", questions, RUNS * EPISODES)
        measure(list_folder, "?", "#runs tbody tr", f"list of {RUNS:,} runs of {EPISODES} episodes")
        measure(run_folder, "run?run=run", ".row", f"list of {RUNS * EPISODES:,} episodes of a run")


if __name__ == "__main__":
    with reporting_errors():
        main(parse_options(Options, None, "python -m benchmarks.view"))
