"""Measure scores and speed of an oracle.

python -m benchmarks.oracles 2048 --episodes 100 --workers 2
python -m benchmarks.oracles shisensho --reasoning 5
python -m benchmarks.oracles 2048 --max-turns 500 --config rows=8 columns=8
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from vlmgym.checks import check_int
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.options import GameOptions
from vlmgym.statistics import mean_and_stderr
from vlmgym.terminal import parse_options, reporting_errors


@dataclass(frozen=True, kw_only=True)
class Options(GameOptions):
    """Play episodes with the oracle of a game and print its scores and speed."""

    game: Annotated[str, tyro.conf.Positional]
    """Name or id of the game."""
    episodes: int = 100
    """Number of episodes."""
    seed: int = 0
    """Seed of the first episode; the others have consecutive seeds."""
    max_turns: int | None = None
    """Maximum number of turns. Default: unlimited."""
    workers: int = os.cpu_count() or 1
    """Worker processes."""

    def __post_init__(self) -> None:
        for name, value in (("episodes", self.episodes), ("workers", self.workers)):
            check_int(name, value, 1)
        check_int("max_turns", self.max_turns, 1, optional=True)
        check_int("seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class Played:
    """Results of one episode. `seconds` and `slowest` are the CPU seconds of all moves and of the slowest one."""

    end: str
    score: float
    turns: int
    metrics: Mapping[str, float | str]
    seconds: float
    slowest: float


def play(game: Game[Any, Any], turns: int | None, seed: int) -> Played:
    """Play one episode; time only the oracle, not the game."""
    episode = Episode(game, seed)
    infos: list[Mapping[str, Any]] = []
    seconds = slowest = 0.0
    end = episode.ended
    while end is None:
        if turns is not None and episode.turn >= turns:
            end = "turn limit"
            break
        start = time.process_time()
        action = game.best_action(episode.state)
        took = time.process_time() - start
        seconds, slowest = seconds + took, max(slowest, took)
        if action is None:
            end = "no oracle action"
            break
        infos.append(episode.act(action).info)
        end = episode.ended
    metrics = dict(game.metrics(episode.state, infos))
    return Played(end, episode.score, episode.turn, metrics, seconds, slowest)


def play_all(game: Game[Any, Any], options: Options, console: Console) -> list[Played]:
    """Play all episodes in worker processes; return the results ordered by seed."""
    seeds = range(options.seed, options.seed + options.episodes)
    workers = min(options.workers, options.episodes)
    ignore_ctrl_c = (signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    with (
        Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as progress,
        get_context("spawn").Pool(workers, signal.signal, ignore_ctrl_c) as pool,
    ):
        episodes = pool.imap(partial(play, game, options.max_turns), seeds)
        return list(progress.track(episodes, total=len(seeds), description="episodes"))


def mean(values: Sequence[float]) -> str:
    """Format mean and standard error."""
    middle, error = mean_and_stderr(values)
    return f"{middle:.4g}" if error is None else f"{middle:.4g} ± {error:.2g}"


def shares(words: Sequence[str]) -> str:
    """Format how often each string occurs, ordered by value if all are numbers, else by frequency."""
    counts = Counter(words)
    numbers = all(word.isdecimal() for word in counts)
    order = sorted(counts, key=int) if numbers else [word for word, _ in counts.most_common()]
    return "\n".join(f"{word}: {counts[word]} ({counts[word] / len(words):.1%})" for word in order)


def table(game: Game[Any, Any], played: Sequence[Played]) -> Table:
    """Tabulate the results."""
    table = Table("", "mean ± standard error, or counts", title=f"oracle of {game.id}, {len(played)} episodes")
    table.add_row("end", shares([episode.end for episode in played]))
    table.add_row("score", mean([episode.score for episode in played]))
    for name in played[0].metrics:
        values = [episode.metrics[name] for episode in played if name in episode.metrics]
        words = [value for value in values if isinstance(value, str)]
        table.add_row(name, shares(words) if words else mean([float(value) for value in values]))
    table.add_row("turns", mean([episode.turns for episode in played]))
    moves = max(1, sum(episode.turns for episode in played))
    table.add_row("CPU ms per move", f"{1000 * sum(episode.seconds for episode in played) / moves:.2f}")
    table.add_row("slowest move", f"{1000 * max(episode.slowest for episode in played):.1f} ms")
    return table


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    with reporting_errors():
        options = parse_options(Options, args, "python -m benchmarks.oracles")
        game = options.make_game(options.game)
        console = Console()
        console.print(table(game, play_all(game, options, console)))


if __name__ == "__main__":
    main()
