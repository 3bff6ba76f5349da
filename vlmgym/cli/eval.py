"""Evaluation from the command line: `vlmgym eval` and the scripts in `vlmgym/test`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from vlmgym.benchmark.suites import read_suite, suite_summary
from vlmgym.cli.games import list_fields
from vlmgym.cli.policy_options import policy_options, with_options
from vlmgym.curriculum import Curriculum
from vlmgym.errors import GameError, UsageError
from vlmgym.evaluation.artifacts import Session, copy_results, session_summary, write_curves, write_videos
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.run import make_run_record, play_run, resume_run
from vlmgym.evaluation.summary_table import bias_note, suite_table, summary_table
from vlmgym.pages.report import write_report
from vlmgym.policies import CustomFunction, Policy, PolicyOptions, PolicySpec, make_policy
from vlmgym.rollout.runner import Games, all_games, check_run, total_episodes
from vlmgym.runs.files import writing
from vlmgym.runs.loggers import check_loggers
from vlmgym.runs.record import RunSummary
from vlmgym.runs.run import RunFolder, ScriptFolder
from vlmgym.runs.store import StoredRun, game_name, open_run
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import game_class
from vlmgym.terminal import make_console, parse_options, reporting_errors
from vlmgym.workers.pool import ProcessPool, num_workers_for, open_pool

REASONS = 3
"""Number of error messages to print, most frequent first."""
UNFINISHED = 1
"""Exit code if any episode ended with an error."""


def evaluate_script(
    file: str,
    game: str,
    custom_policy: CustomFunction | None = None,
    args: Sequence[str] | None = None,
    preset: Mapping[str, Any] | None = None,
) -> None:
    """Run an evaluation script, which writes its files next to itself.

    Args:
        file: The script's `__file__`; `eval_2048.py` writes `logs/test_2048.json` and so on.
        game: Id or name of the game.
        custom_policy: Default policy if `--policy` is not given.
        args: Command line; None: `sys.argv`.
        preset: Config fields set by the script, such as {"tiles": "digits"}; `--config` overrides them.
    """
    with reporting_errors():
        options = policy_options(args, custom_policy)
        config = with_options(EvalConfig, options)
        found = game_class(game)
        about = f"{config.__doc__} The config fields of {found.name} for --config are {list_fields(found.Config)}."
        parsed = parse_options(config, args, Path(file).name, about)
        default = ScriptFolder(Path(file).resolve().parent, Path(file).stem.replace("eval_", "test_", 1))
        run_evaluation([game], parsed.config, parsed.options, default, custom_policy, preset)


def run_evaluation(
    game_names: Sequence[str],
    config: EvalConfig,
    options: PolicyOptions | None = None,
    default_folder: RunFolder | None = None,
    custom_policy: CustomFunction | None = None,
    preset: Mapping[str, Any] | None = None,
    curriculum: Path | None = None,
    played: Games | None = None,
    suite: str | None = None,
) -> RunSummary:
    """Play the configured episodes, write all files of the run, and return its summary.

    Exits with code 1 if an episode ended with an error.

    Args:
        game_names: Ids or names of the games.
        config: The options.
        options: Options of the policy.
        default_folder: Output folder if `config` names none; None: a new folder under `logs`.
        custom_policy: Default policy if `config.policy` is None.
        preset: Config fields that `config` may override.
        curriculum: Curriculum file or name, instead of `game_names`.
        played: Games or curriculum, instead of `game_names` and `curriculum`.
        suite: Name of a suite, which sets the games and their settings.
    """
    if suite is not None:
        chosen = read_suite(suite)
        config, played = chosen.configure(config), chosen.make_games(config.observation)
        if others := sorted(chosen.games.keys() - {game.id for game in played}):
            make_console(stderr=True).print(
                f"left out because they have no text description: {', '.join(others)}", soft_wrap=True
            )
    if played is None:
        played = _played(game_names, config, preset, curriculum)
    if config.all_rows:
        config = dataclasses.replace(config, episodes=rows_of(played), all_rows=False)
    games = all_games(played)
    choice: PolicySpec = config.policy if config.policy is not None else custom_policy or "random"
    policy = make_policy(choice, options)
    check_run(policy, played, config)
    check_loggers(tensorboard=config.tensorboard, wandb=config.wandb)
    for game in games:
        with suppress(GameError):  # an episode may fail; the game's data must open before the folder is created
            Episode(game, config.seed)
    folder = _folder(config, default_folder, games, policy)
    record = make_run_record(config, played, policy, suite)
    console, progress_console = make_console(), make_console(stderr=True)
    with folder.new_run(record) if config.resume is None else folder.reserved():
        earlier = None if config.resume is None else resume_run(folder, record, progress_console)
        before = earlier.summary if earlier is not None else None
        episodes = total_episodes(played, config)
        with ExitStack() as pools:
            players = pools.enter_context(open_pool(config.backend, episodes, config.workers))
            session = play_run(folder, played, policy, config, earlier, players, progress_console)
            workers = players
            if not isinstance(workers, ProcessPool):  # Ray plays, but results are written locally
                workers = pools.enter_context(ProcessPool(num_workers_for(episodes, None)))
            run = open_run(folder)
            summary = session_summary(run, session, before)
            summary = summary.model_copy(update={"suite": suite_summary(run.config, summary.games)})
            folder.write_summary(summary)
            # Print scores first, since videos may take minutes.
            console.print(summary_table(run.config, summary))
            if note := bias_note(summary.games):
                console.print(note)
            if suite is not None and summary.suite is not None:
                console.print(suite_table(suite, summary.suite).rich())
            write_curves(run)
            write_videos(run, config.videos, config.fps, workers, progress_console)
            if config.report:
                write_report(run, summary, workers, progress_console)
            copies = copy_results(run, folder, summary) if isinstance(folder, ScriptFolder) else []
    _print_paths(console, run, config, copies)
    _report_unfinished(folder, summary, session, progress_console)
    return summary


def _played(
    names: Sequence[str], config: EvalConfig, preset: Mapping[str, Any] | None, curriculum: Path | None
) -> Games:
    if curriculum is None:
        return [config.make_game(name, preset) for name in names]
    if names:
        raise UsageError("--curriculum already names the games: give either games or --curriculum")
    return Curriculum.read(curriculum, config.data_settings())


def rows_of(played: Games) -> int:
    """Return the number of rows in the games' data, which must be the same for all games."""
    if isinstance(played, Curriculum):
        raise UsageError("--all-rows does not work with --curriculum")
    rows = {}
    for game in played:
        if not isinstance(game, DataTask):
            raise UsageError(f"--all-rows asks about every row of a dataset, which {game.name} does not have")
        if game.config.data is None:
            raise UsageError(f"--all-rows needs data for {game.name}: add --config data=...")
        rows[game.name] = len(game.source)
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise UsageError(f"--all-rows needs data with the same number of rows for every game: {counts}")
    return next(iter(rows.values()))


def _folder(
    config: EvalConfig, default: RunFolder | None, games: Sequence[Game[Any, Any]], policy: Policy
) -> RunFolder:
    chosen = config.resume or config.output_dir
    if default is not None and (chosen is None or (config.resume and chosen.resolve() == default.folder.resolve())):
        return default
    return RunFolder(chosen or _claimed(_name(games, policy)))


def _name(games: Sequence[Game[Any, Any]], policy: Policy) -> str:
    """Name a run after its games, policy and time."""
    what = re.sub(r"[^\w.+-]", "_", "+".join(dict.fromkeys(game.name for game in games)))
    who = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in re.split(r"[/\\]", policy.name)[-1])
    return f"{what[:80]}-{who[-60:]}-{datetime.now():%Y%m%d-%H%M%S}"


def _claimed(name: str) -> Path:
    """Create a folder under `logs`, numbered if the name is taken, and return its path."""
    for n in count(1):
        folder = Path("logs") / (name if n == 1 else f"{name}-{n}")
        with writing(folder), suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("unreachable")


def _print_paths(console: Console, run: StoredRun, config: EvalConfig, copies: Sequence[Path]) -> None:
    """Print the paths of the results; those beside a script instead of the originals."""
    folder = run.folder
    curves, videos = [*map(folder.curves, map(game_name, run.config.game_ids))], [*run.videos().values()]
    if copies:
        console.print(f"records {copies[0]}", soft_wrap=True)
        curves, videos = ([path for path in copies if path.suffix == suffix] for suffix in (".png", ".mp4"))
    for path in curves:
        if path.exists():
            console.print(f"curves  {path}", soft_wrap=True)
    if config.report:
        console.print(f"report  {folder.report}", soft_wrap=True)
    if videos:
        console.print(f"videos  {videos[0]}{' ...' if len(videos) > 1 else ''}", soft_wrap=True)
    console.print(f"run     {folder.folder}", soft_wrap=True)


def _report_unfinished(folder: RunFolder, summary: RunSummary, session: Session, console: Console) -> None:
    """Report why episodes have no result; exit with code 1 if an episode ended with an error."""
    errors = sum(game.unfinished.get("error", 0) for game in summary.games.values())
    if summary.stop_reason:
        console.print(f"stopped: {summary.stop_reason}; continue with --resume {folder.folder}", soft_wrap=True)
    for reason, times in session.errors.most_common(REASONS):
        console.print(f"error in {times} {'episode' if times == 1 else 'episodes'}: {reason}", soft_wrap=True)
    if errors:
        episodes = "1 episode has" if errors == 1 else f"{errors} episodes have"
        console.print(f"{episodes} no score; continue with --resume {folder.folder}", soft_wrap=True)
        raise SystemExit(UNFINISHED)
