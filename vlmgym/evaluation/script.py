"""What the evaluation scripts and `vlmgym eval` run: options in, records, curves, videos and a table out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vlmgym.errors import VlmgymError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.output import EpisodeLog, Output, replace_file
from vlmgym.evaluation.record import EpisodeRecord, RunRecord, TurnRecord
from vlmgym.evaluation.runner import evaluate, run_async
from vlmgym.evaluation.summary import summarise
from vlmgym.evaluation.table import summary_table
from vlmgym.evaluation.workers import Workers, workers_for
from vlmgym.options import parse_options, reporting_errors
from vlmgym.policies import CustomFunction, Policy, make_policy
from vlmgym.sandbox.game import Game


def evaluate_script(
    file: str, game: str, custom_policy: CustomFunction | None = None, args: Sequence[str] | None = None
) -> None:
    """Run an evaluation script: read its command line, play, write beside it, print the table.

    Args:
        file: The script's `__file__`; `eval_2048.py` writes `logs/test_2048.json` and so on beside itself.
        game: Id or name of the game.
        custom_policy: The policy that is used unless `--policy` names another.
        args: The command line, by default the process's.
    """
    with reporting_errors():
        config = parse_options(EvalConfig, args, prog=Path(file).name)
        name = Path(file).stem.replace("eval_", "test_", 1)
        run_evaluation(game, config, Output(config.out or Path(file).resolve().parent, name), custom_policy)


def run_evaluation(
    game_name: str, config: EvalConfig, output: Output, custom_policy: CustomFunction | None = None
) -> RunRecord:
    """Play what a configuration says and write all files of the run.

    Raises:
        UsageError: An option is not accepted; nothing was played.
        VlmgymError: The run failed; the message says where finished episodes are.
    """
    game = config.make_game(game_name)
    chosen = config.policy if config.policy is not None else custom_policy or "random"
    policy = make_policy(chosen, game, config.timeout)
    with output.reserved():
        output.prepare(config.video)
        progress_console = Console(stderr=True)
        with Workers(workers_for(config.episodes, config.workers)) as workers:
            episodes, seconds = _play(game, policy, config, output, workers, progress_console)
            run = RunRecord(summary=summarise(episodes, seconds), episodes=tuple(episodes))
            replace_file(output.run, run.document().encode())
            output.episodes.unlink()
            _draw(game, episodes, config, output, workers, progress_console)
    console = Console()
    console.print(summary_table(f"{game.id}, {policy.name}", run.summary))
    console.print(f"records {output.run}\ncurves  {output.curves}", soft_wrap=True)
    if config.video:
        console.print(f"videos  {output.video(0)} ...", soft_wrap=True)
    return run


def _play(
    game: Game[Any, Any], policy: Policy, config: EvalConfig, output: Output, workers: Workers, console: Console
) -> tuple[list[EpisodeRecord], float]:
    """All episodes, each on the disk as it ends, and the seconds it took to play them."""
    with EpisodeLog(output.episodes) as log, _Progress(console, game, config) as progress:

        def keep(episode: EpisodeRecord) -> None:
            log.write(episode)
            progress.episode(episode)

        try:
            run_async(workers.start())
            began = time.perf_counter()
            episodes = evaluate(
                game,
                policy,
                config.episodes,
                turns=config.turns,
                seed=config.seed,
                concurrency=config.concurrency,
                workers=workers,
                history=config.history,
                reward=config.reward,
                timeout=config.timeout,
                on_turns=progress.turns,
                on_episode=keep,
            )
        except (VlmgymError, KeyboardInterrupt) as error:
            if log.written:
                error.args = (f"{str(error) or 'interrupted'}; {log.written} finished episodes are in {log.path}",)
            else:
                log.path.unlink(missing_ok=True)
            raise
        return episodes, time.perf_counter() - began


def _draw(
    game: Game[Any, Any],
    episodes: Sequence[EpisodeRecord],
    config: EvalConfig,
    output: Output,
    workers: Workers,
    console: Console,
) -> None:
    """Curves and videos, from the records."""
    # Worker processes import the user's script, and so this module, too: they need no matplotlib.
    from vlmgym.evaluation.curves import draw_curves
    from vlmgym.evaluation.video import write_video

    replace_file(output.curves, draw_curves(episodes))
    if not config.video:
        return

    async def write_videos(bar: Progress) -> None:
        calls = [
            workers.call(write_video, output.video(i), game, episode, config.fps) for i, episode in enumerate(episodes)
        ]
        for call in asyncio.as_completed(calls):
            await call
            bar.advance(task)

    with Progress(*_COLUMNS, console=console) as bar:
        task = bar.add_task("videos", total=len(episodes), facts="")
        run_async(write_videos(bar))


_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("{task.fields[facts]}"),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


class _Progress(Progress):
    """Turns played of all there can be, episodes ended and their mean score so far."""

    def __init__(self, console: Console, game: Game[Any, Any], config: EvalConfig) -> None:
        super().__init__(*_COLUMNS, console=console)
        self.config = config
        self.scores: list[float] = []
        self.bar = self.add_task(game.name, total=config.episodes * config.turns, facts="")

    def turns(self, turns: list[TurnRecord]) -> None:
        self.advance(self.bar, len(turns))

    def episode(self, episode: EpisodeRecord) -> None:
        self.scores.append(episode.score)
        # An ended episode has no more turns to play.
        self.advance(self.bar, self.config.turns - len(episode.turns))
        mean = sum(self.scores) / len(self.scores)
        self.update(self.bar, facts=f"turns, {len(self.scores)}/{self.config.episodes} episodes, mean {mean:,.1f}")
