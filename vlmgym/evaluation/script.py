"""What the evaluation scripts and `vlmgym eval` run: options in, records, curves, videos and a table out."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, cast

import tyro
from rich.console import Console

from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.files import LineLog
from vlmgym.evaluation.progress import LiveProgress
from vlmgym.evaluation.record import EpisodeRecord, GameRecord, PolicyRecord, RunRecord, RunSummary, now, versions
from vlmgym.evaluation.report import LabelledRun, write_report
from vlmgym.evaluation.results import Part, draw_results, write_summary
from vlmgym.evaluation.run_folder import RunFolder, ScriptFolder, differences, drop_torn_line, latest, read_run
from vlmgym.evaluation.runner import Hooks, evaluate, run_async
from vlmgym.evaluation.table import bias_note, summary_table
from vlmgym.evaluation.workers import Workers, workers_for
from vlmgym.options import parse_options, reporting_errors
from vlmgym.policies import CustomFunction, Policy, PolicyChoice, PolicyOptions, make_policy, options_type
from vlmgym.sandbox.game import Game

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
        preset: Knobs of the game that the script sets, for instance {"tiles": "digits"}; `--set` overrides them.
    """
    with reporting_errors():
        options = policy_options(args, custom_policy)
        config = with_options(EvalConfig, options)
        parsed = parse_options(config, args, prog=Path(file).name)
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
    return options_type(named if named is not None else custom_policy or "random")


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
) -> RunSummary:
    """Play what a configuration says and write all files of the run.

    Args:
        game_names: Ids or names of the games.
        config: The options.
        options: Options of the policy; None: its defaults.
        place: Where to write, unless `config.out` or `config.resume` says; None: a new folder under `logs`.
        custom_policy: The policy that is used unless `config.policy` names another.
        preset: Knobs of the games that `config` may override.

    Raises:
        UsageError: An option is not accepted; nothing was played.
        VlmgymError: The run failed; the message says where finished episodes are.
        SystemExit: Episodes ended as errors; everything is written.
    """
    games = [config.make_game(name, preset) for name in game_names]
    if len({game.id for game in games}) < len(games):
        raise UsageError("a game is named twice")
    choice: PolicyChoice = config.policy if config.policy is not None else custom_policy or "random"
    policy = make_policy(choice, options)
    for game in games:
        policy.check(game)
    folder = _folder(config, place, games, policy)
    asked = _asked(config, games, policy)
    console, progress_console = Console(), Console(stderr=True)
    with folder.reserved():
        earlier: list[EpisodeRecord] = []
        before: RunSummary | None = None
        if config.resume is None:
            folder.make_way()
            folder.begin(asked)
        else:
            earlier, before = _resume(folder, asked, progress_console)
        with Workers(workers_for(config.episodes * len(games), config.workers)) as workers:
            playing = _Playing(folder, games, config, earlier)
            playing.play(policy, workers, progress_console)
            if before is None:
                folder.clear_results()
            summary = write_summary(folder, asked, playing.episodes, playing.part, before)
            draw_results(
                folder, games, playing.episodes, config.fps if config.video else None, workers, progress_console
            )
            if config.report:
                write_report(folder, LabelledRun.of(asked, playing.episodes, summary), workers, progress_console)
    console.print(summary_table(policy.name, summary))
    if note := bias_note(summary):
        console.print(note)
    _print_places(console, folder, games, config)
    _tell_unfinished(folder, summary, progress_console)
    return summary


def _folder(config: EvalConfig, place: RunFolder | None, games: Sequence[Game[Any, Any]], policy: Policy) -> RunFolder:
    if config.resume is not None:
        same = place is not None and config.resume.resolve() == place.folder.resolve()
        return cast(RunFolder, place) if same else RunFolder(config.resume)
    if config.out is not None:
        return RunFolder(config.out)
    if place is not None:
        return place
    what = "+".join(game.name for game in games)
    who = "".join(c if c.isalnum() or c in "-_" else "_" for c in policy.name)
    return RunFolder(Path("logs") / f"{what}-{who}-{datetime.now():%Y%m%d-%H%M%S}")


def _asked(config: EvalConfig, games: Sequence[Game[Any, Any]], policy: Policy) -> RunRecord:
    return RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, games)),
        policy=PolicyRecord(name=policy.name, options=policy.options.deciding()),
        reward=config.reward,
        history=config.history,
        history_images=config.history_images,
        max_turns=config.turns,
        seed=config.seed,
        episodes=config.episodes,
        options={
            "concurrency": config.concurrency,
            "workers": config.workers,
            **dataclasses.asdict(config.budget),
            "policy": policy.options.shown(),
        },
    )


def _resume(folder: RunFolder, asked: RunRecord, console: Console) -> tuple[list[EpisodeRecord], RunSummary | None]:
    """The records of an earlier part of the run, and its summary if it had come to its end."""
    run = read_run(folder)
    if different := differences(run.asked, asked):
        raise UsageError(
            f"{folder.folder} was a run with other options, so it cannot be resumed: {'; '.join(different)}"
        )
    if run.torn:
        drop_torn_line(folder.episodes)
        console.print(f"the last line of {folder.episodes} was not whole, and is dropped", soft_wrap=True)
    if run.asked.versions != asked.versions:
        changed = [
            f"{name} {run.asked.versions.get(name)}"
            for name, v in asked.versions.items()
            if run.asked.versions.get(name) != v
        ]
        console.print(
            f"the run was begun with {', '.join(changed)}; each episode's record says what it was played with"
        )
    summary = folder.reopen()
    folder.begin(asked.model_copy(update={"started": run.asked.started, "versions": run.asked.versions}))
    return list(run.episodes), summary


class _Playing:
    """Plays what is missing of a run, each episode on the disk as it ends."""

    def __init__(
        self, folder: RunFolder, games: Sequence[Game[Any, Any]], config: EvalConfig, earlier: list[EpisodeRecord]
    ) -> None:
        self.folder, self.games, self.config, self.earlier = folder, games, config, earlier
        self.episodes: list[EpisodeRecord] = []
        self.part = Part()

    def play(self, policy: Policy, workers: Workers, console: Console) -> None:
        """Play.

        Raises:
            VlmgymError: The run failed; the message says where finished episodes are.
        """
        config = self.config
        missing = config.episodes * len(self.games) - sum(episode.score is not None for episode in self.earlier)
        progress = LiveProgress(console, [game.id for game in self.games], missing, config.turns)
        with LineLog(self.folder.episodes) as log, progress:

            def on_turns(turns: Sequence[Any]) -> None:
                self.part.turns += len(turns)
                progress.turns(turns)

            def on_episode(episode: EpisodeRecord) -> None:
                log.write(episode.model_dump_json())
                self.episodes.append(episode)
                progress.episode(episode)

            try:
                run_async(workers.start())
                began = time.perf_counter()
                self.episodes = evaluate(
                    self.games,
                    policy,
                    config.episodes,
                    turns=config.turns,
                    seed=config.seed,
                    concurrency=config.concurrency,
                    workers=workers,
                    history=config.history,
                    history_images=config.history_images,
                    reward=config.reward,
                    budget=config.budget,
                    resume=self.earlier,
                    hooks=Hooks(on_turns, on_episode, self._stop),
                )
                self.part.seconds = time.perf_counter() - began
            except (VlmgymError, KeyboardInterrupt) as error:
                results = latest([*self.earlier, *self.episodes]).values()
                finished = sum(episode.score is not None for episode in results)
                where = (
                    f"{finished} finished episodes are in {self.folder.episodes}; --resume {self.folder.folder} goes on"
                )
                error.args = (f"{str(error) or 'interrupted'}; {where}",)
                raise

    def _stop(self, reason: str) -> None:
        self.part.stopped = reason


def _print_places(console: Console, folder: RunFolder, games: Sequence[Game[Any, Any]], config: EvalConfig) -> None:
    for game in games:
        for word, path in (("records", folder.record(game.name)), ("curves ", folder.curves(game.name))):
            if path is not None and path.exists():
                console.print(f"{word} {path}", soft_wrap=True)
    if config.report:
        console.print(f"page    {folder.report}", soft_wrap=True)
    if config.video:
        console.print(f"videos  {folder.video(games[0].name, 0)} ...", soft_wrap=True)
    console.print(f"run     {folder.folder}", soft_wrap=True)


def _tell_unfinished(folder: RunFolder, summary: RunSummary, console: Console) -> None:
    """Say what has no result; end with an exit code other than 0 unless a budget was the reason."""
    errors = sum(game.unfinished.get("error", 0) for game in summary.games.values())
    if summary.stopped:
        console.print(f"stopped: {summary.stopped}; --resume {folder.folder} goes on", soft_wrap=True, markup=False)
    if errors:
        console.print(
            f"{errors} episodes ended as errors and have no score; --resume {folder.folder} goes on with them",
            soft_wrap=True,
            markup=False,
        )
        raise SystemExit(UNFINISHED)
