"""What the evaluation scripts and `vlmgym eval` run: options in, records, curves, videos and a table out."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

import tyro
from rich.console import Console

from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.cli.games import in_short
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.live_log import check_loggers
from vlmgym.evaluation.playing import Played, count_of, games_of, make_run_record, play_run, reopen
from vlmgym.evaluation.report import LabelledRun, write_report
from vlmgym.evaluation.results import Part, write_curves, write_summary, write_videos
from vlmgym.evaluation.table import bias_note, summary_table
from vlmgym.policies import POLICIES, CustomFunction, Policy, PolicyOptions, PolicySpec, make_policy, options_type
from vlmgym.records.files import writing
from vlmgym.records.run import RunSummary
from vlmgym.records.run_folder import RunFolder, ScriptFolder
from vlmgym.records.store import StoredRun, game_name, open_run, read_asked
from vlmgym.rollout.runner import check_concurrency, check_policy
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.registry import game_class
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool, open_pool
from vlmgym.workers.process import num_workers_for

REASONS = 3
"""Reasons of errors that are told, the most frequent first."""
UNFINISHED = 1
"""Exit code when episodes ended as errors, so that their results are missing."""


def evaluate_script(
    file: str,
    game: str,
    custom_policy: CustomFunction | None = None,
    args: Sequence[str] | None = None,
    preset: Mapping[str, Any] | None = None,
) -> None:
    """Run an evaluation script: read its command line, play, write beside it, print the table.

    Args:
        file: The script's `__file__`; `eval_2048.py` writes `logs/test_2048.json` and so on beside itself.
        game: Id or name of the game.
        custom_policy: The policy that is used unless `--policy` names another.
        args: The command line, by default the process's.
        preset: Knobs of the game that the script sets, for instance {"tiles": "digits"}; `--config` overrides them.
    """
    with reporting_errors():
        options = policy_options(args, custom_policy)
        config = with_options(EvalConfig, options)
        found = game_class(game)
        about = f"{config.__doc__} The config fields of {found.name} for --config are {in_short(found.Config)}."
        parsed = parse_options(config, args, Path(file).name, about)
        place = ScriptFolder(Path(file).resolve().parent, Path(file).stem.replace("eval_", "test_", 1))
        run_evaluation([game], parsed.config, parsed.options, place, custom_policy, preset)


def policy_options(args: Sequence[str] | None, custom_policy: CustomFunction | None = None) -> type[PolicyOptions]:
    """The type of the options of the policy that a command line names.

    Raises:
        UsageError: There is no such policy.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--policy")
    try:
        named = parser.parse_known_args(args)[0].policy
    except argparse.ArgumentError:
        named = None  # --policy without a word: the parser that follows says so
    policy = named if named is not None else custom_policy or "random"
    options = options_type(policy)
    _refuse_options_of_others(sys.argv[1:] if args is None else args, policy, options)
    return options


def _refuse_options_of_others(args: Sequence[str], policy: PolicySpec, options: type[PolicyOptions]) -> None:
    """Name the policies that have an option, if the chosen one does not."""
    owners: dict[str, list[str]] = {}
    for name in (*POLICIES, "MODULE:FUNCTION"):
        for option in _names(options_type(name)):
            owners.setdefault(option, []).append(name)
    own = {*_names(options), *_names(EvalConfig)}
    for word in args:
        option = word.partition("=")[0].replace("_", "-")
        if option in owners and option not in own:
            chosen = policy if isinstance(policy, str) else "of this script"
            first, *others = owners[option]
            also = f" (or {', '.join(others)})" if others else ""
            raise UsageError(f"{option} is not an option of the policy {chosen}: choose --policy {first}{also}")


def _names(options: type[Any]) -> list[str]:
    """The options of a type on the command line."""
    return [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(options)]


def with_options(config: type[EvalConfig], options: type[PolicyOptions]) -> Any:
    """A type with the fields `config` and `options`, both options of the command line without a prefix."""
    flat = tyro.conf.arg(name="")
    fields = [("config", Annotated[config, flat]), ("options", Annotated[options, flat])]
    made = dataclasses.make_dataclass(config.__name__, fields, frozen=True)
    made.__doc__ = config.__doc__
    return made


def run_evaluation(
    game_names: Sequence[str],
    config: EvalConfig,
    options: PolicyOptions | None = None,
    place: RunFolder | None = None,
    custom_policy: CustomFunction | None = None,
    preset: Mapping[str, Any] | None = None,
    curriculum: Path | None = None,
) -> RunSummary:
    """Play what a configuration says and write all files of the run.

    Args:
        game_names: Ids or names of the games.
        config: The options.
        options: Options of the policy; None: its defaults.
        place: Where to write, unless `config.output_dir` or `config.resume` says; None: a new folder under `logs`.
        custom_policy: The policy that is used unless `config.policy` names another.
        preset: Knobs of the games that `config` may override.
        curriculum: The file of a curriculum, or its name, that is played instead of games.

    Raises:
        UsageError: An option is not accepted; nothing was played.
        VlmgymError: The run failed; the message says where finished episodes are.
        SystemExit: Episodes ended as errors; everything is written.
    """
    played = _played(game_names, config, preset, curriculum)
    if config.all_rows:
        config = dataclasses.replace(config, episodes=rows_of(played), all_rows=False)
    games = games_of(played)
    choice: PolicySpec = config.policy if config.policy is not None else custom_policy or "random"
    policy = make_policy(choice, options)
    for game in games:
        policy.check(game)
    check_policy(policy, config.budget, config.history_images)
    check_loggers(tensorboard=config.tensorboard, wandb=config.wandb)
    check_concurrency(games, config.episodes, config.concurrency)
    folder = _folder(config, place, games, policy)
    asked = make_run_record(config, played, policy)
    console, progress_console = make_console(), make_console(stderr=True)
    if config.resume is not None:
        read_asked(folder)
    with folder.reserved():
        earlier = None
        if config.resume is None:
            folder.make_way()
            folder.check(asked, videos=config.videos > 0, report=config.report)
            folder.begin(asked)
        else:
            folder.check(asked, videos=config.videos > 0, report=config.report)
            earlier = reopen(folder, asked, progress_console)
        before = earlier.summary if earlier is not None else None
        episodes = count_of(played, config)
        with ExitStack() as pools:
            players = pools.enter_context(open_pool(config.backend, episodes, config.workers))
            part = play_run(folder, played, policy, config, earlier, players, progress_console)
            # Files are written on this machine.
            workers = (
                players
                if isinstance(players, ProcessPool)
                else pools.enter_context(ProcessPool(num_workers_for(episodes, None)))
            )
            if before is None:
                folder.clear_results()
            run = open_run(folder)
            summary = write_summary(run, part, before)
            # Scores first: videos may take minutes.
            console.print(summary_table(run.asked, summary))
            if note := bias_note(summary.games):
                console.print(note)
            write_curves(run)
            write_videos(run, config.videos, config.fps, workers, progress_console)
            if config.report:
                write_report(folder, LabelledRun.of(run, summary), workers, progress_console)
    _print_places(console, run, config)
    _tell_unfinished(folder, summary, part, progress_console)
    return summary


def _played(
    names: Sequence[str], config: EvalConfig, preset: Mapping[str, Any] | None, curriculum: Path | None
) -> Played:
    if curriculum is None:
        games = [config.make_game(name, preset) for name in names]
        if len({game.id for game in games}) < len(games):
            raise UsageError("a game is named twice")
        return games
    if names:
        raise UsageError("a curriculum says which games are played: leave out either the games or --curriculum")
    if config.any_given:
        options = "--size, --perception, --reasoning, --strict, --config"
        raise UsageError(f"a curriculum says how hard its games are: leave out {options}")
    return Curriculum.read(curriculum)


def rows_of(played: Played) -> int:
    """How many rows the data of each game have."""
    if isinstance(played, Curriculum):
        raise UsageError("a curriculum does not go through data row by row: leave out --all-rows")
    rows = {}
    for game in played:
        if not isinstance(game, Task) or game.config.data is None:
            raise UsageError(f"{game.name} has no data: name some by --config data=...")
        rows[game.name] = len(game.source)
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise UsageError(f"all games of a run have as many episodes, but not as many rows: {told}")
    return next(iter(rows.values()))


def _folder(config: EvalConfig, place: RunFolder | None, games: Sequence[Game[Any, Any]], policy: Policy) -> RunFolder:
    if config.resume is not None:
        same = place is not None and config.resume.resolve() == place.folder.resolve()
        return cast(RunFolder, place) if same else RunFolder(config.resume)
    if config.output_dir is not None:
        return RunFolder(config.output_dir)
    if place is not None:
        return place
    return RunFolder(_claimed(_name(games, policy)))


def _name(games: Sequence[Game[Any, Any]], policy: Policy) -> str:
    """The name of a run: what, who, when; of a function's path its last part."""
    what = "+".join(dict.fromkeys(game.name for game in games))
    who = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in re.split(r"[/\\]", policy.name)[-1])
    return f"{what[:80]}-{who[-60:]}-{datetime.now():%Y%m%d-%H%M%S}"


def _claimed(name: str) -> Path:
    """A new folder of this name under `logs`, or of the next free one: runs may be started in the same second.

    Raises:
        OutputError: It cannot be made.
    """
    for n in count(1):
        folder = Path("logs") / (name if n == 1 else f"{name}-{n}")
        with writing(folder):
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    raise AssertionError("count() ends")


def _print_places(console: Console, run: StoredRun, config: EvalConfig) -> None:
    folder = run.folder
    for name in map(game_name, run.asked.game_ids):
        for word, path in (("records", folder.record(name)), ("curves ", folder.curves(name))):
            if path is not None and path.exists():
                console.print(f"{word} {path}", soft_wrap=True)
    if config.report:
        console.print(f"page    {folder.report}", soft_wrap=True)
    if videos := list(run.videos().values()):
        console.print(f"videos  {videos[0]}{' ...' if len(videos) > 1 else ''}", soft_wrap=True)
    console.print(f"run     {folder.folder}", soft_wrap=True)


def _tell_unfinished(folder: RunFolder, summary: RunSummary, part: Part, console: Console) -> None:
    """Say what has no result; end with an exit code other than 0 unless a budget was the reason."""
    errors = sum(game.unfinished.get("error", 0) for game in summary.games.values())
    if summary.stopped:
        console.print(f"stopped: {summary.stopped}; --resume {folder.folder} goes on", soft_wrap=True)
    for reason, times in part.errors.most_common(REASONS):
        console.print(f"error in {times} {'episode' if times == 1 else 'episodes'}: {reason}", soft_wrap=True)
    if errors:
        episodes = "1 episode has" if errors == 1 else f"{errors} episodes have"
        console.print(f"{episodes} no score; --resume {folder.folder} goes on", soft_wrap=True)
        raise SystemExit(UNFINISHED)
