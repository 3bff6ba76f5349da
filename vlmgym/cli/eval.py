"""`vlmgym eval`: evaluate a policy: play episodes and write records, curves, videos and a report.

Also runs the evaluation scripts in `vlmgym/test`.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes

from vlmgym.benchmark.suites import read_suite, suite_summary
from vlmgym.cli.games import list_fields
from vlmgym.curriculum import Curriculum
from vlmgym.errors import GameError, UsageError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.dry_run import dry_run
from vlmgym.evaluation.live_log import check_loggers
from vlmgym.evaluation.repeats import RepeatsConfig, repeats
from vlmgym.evaluation.run import Session, copy_results, evaluate_run, write_curves, write_videos
from vlmgym.evaluation.table import TableConfig, table
from vlmgym.evaluation.tables import bias_note, control_note, suite_table, summary_table
from vlmgym.pages.report import write_report
from vlmgym.policies import POLICIES, CustomFunction, Policy, PolicyOptions, PolicySpec, make_policy, options_type
from vlmgym.policies.base import SamplingOptions, StatePolicy
from vlmgym.policies.openai.policy import OpenAIOptions
from vlmgym.rollout.runner import Games, all_games, check_run
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import free_path
from vlmgym.runs.record import RunSummary, allow_data
from vlmgym.runs.run import RUN, RunFolder, ScriptFolder
from vlmgym.runs.store import StoredRun, game_name, open_run
from vlmgym.sandbox.core.config import parse_config_fields
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.drawing.skins import SkinName
from vlmgym.sandbox.options import GameNames, GameOptions
from vlmgym.sandbox.registry import WITHOUT_DATA, game_class, game_ids, load_games
from vlmgym.terminal import make_console, reporting_errors

ConfigT = TypeVar("ConfigT")

REASONS = 3
"""Number of error messages to print, most frequent first."""
UNFINISHED = 1
"""Exit code if any episode ended with an error."""


@dataclass(frozen=True, kw_only=True)
class EvalCommand(EvalConfig):
    """Options of `vlmgym eval`."""

    game: GameNames = ()
    """Game ids or names (2048), or published settings (g1/swap); see vlmgym games."""
    games: Annotated[tuple[tuple[str, ...], ...], tyro.conf.arg(metavar="GAME ..."), tyro.conf.UseAppendAction] = ()
    """Same as the positional games."""
    curriculum: Path | None = None
    """Curriculum to play instead of games: a file or a built-in name (docs/curricula.md); --episodes is the total."""
    suite: str | None = None
    """Suite to play instead of games, with its settings (docs/suites.md), or all: every game, with your settings."""
    as_trained: Path | None = None
    """Checkpoint: evaluate with the settings in its vlmgym.json (games, difficulty, turn limit, ...), on validation
    seeds. Other options override these settings, except the games.
    The vllm and transformers policies load the checkpoint itself, unless --model is given."""


def run_eval(args: Sequence[str], about: str) -> None:
    """Run `vlmgym eval` with the options of a command line; `about` describes it in the help."""
    policy_type = _policy_options(args)
    named_suite, checkpoint = option_value("--suite", args), option_value("--as-trained", args)
    defaults: dict[str, Any] = {}
    policy_defaults: dict[str, Any] = {}
    if checkpoint is not None:
        defaults, policy_defaults = _trained_options(Path(checkpoint), policy_type)
    elif named_suite not in (None, "all"):
        defaults = dict(read_suite(named_suite).options)
    config, options = parse_with_policy(
        EvalCommand(**defaults), policy_type(**policy_defaults), args, "vlmgym eval", about
    )
    games: Games | Sequence[str] = (*config.game, *chain.from_iterable(config.games))
    sources = {"--suite": config.suite, "--as-trained": config.as_trained, "--curriculum": config.curriculum}
    chosen_sources = [name for name, value in {**sources, "games": games or None}.items() if value is not None]
    if len(chosen_sources) > 1:
        raise UsageError(f"{chosen_sources[0]} names the games: leave out {' and '.join(chosen_sources[1:])}")
    suite = None
    if config.suite == "all":
        games = game_ids()
    elif config.suite is not None:
        suite, chosen = config.suite, read_suite(config.suite)
        fixed = dict.fromkeys([*defaults, *(field.name for field in dataclasses.fields(GameOptions)), "all_rows"])
        for name in fixed:
            if getattr(config, name) != defaults.get(name, getattr(EvalConfig, name)):
                option = "config" if name == "overrides" else name.replace("_", "-")
                raise UsageError(f"--{option} is fixed by the suite: remove it")
        games = chosen.make_games(config.observation)
        if others := sorted(chosen.games.keys() - {game.id for game in games}):
            words = f"left out because they have no text description: {', '.join(others)}"
            make_console(stderr=True).print(words, soft_wrap=True)
    elif config.as_trained is not None:
        trained = TrainedRecord.read(config.as_trained)
        games, config = trained_games(trained, config), dataclasses.replace(config, reward=trained.reward)
    elif config.curriculum is not None:
        games = Curriculum.read(config.curriculum, config.data_settings())
    elif not games:
        raise UsageError(f"name a game: vlmgym eval {'|'.join(game.name for game in load_games()[0].values())}")
    run_evaluation(games, config, options, suite=suite)


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
        about = EvalConfig.__doc__ or ""
        for script_game in map(game_class, filter(None, (game, WITHOUT_DATA.get(game)))):
            about += f" The config fields of {script_game.name} for --config are {list_fields(script_game.Config)}."
        args = sys.argv[1:] if args is None else args
        config, options = parse_with_policy(
            EvalConfig(), _policy_options(args, custom_policy)(), args, Path(file).name, about
        )
        default = ScriptFolder(Path(file).resolve().parent, Path(file).stem.replace("eval_", "test_", 1))
        run_evaluation([config.make_game(game, preset)], config, options, default, custom_policy)


def _policy_options(args: Sequence[str], custom_policy: CustomFunction | None = None) -> type[PolicyOptions]:
    """Return the options type of the policy of a command line; reject options of other policies.

    Without `--policy`, a server implies the `openai` policy, whose options are also shown in the help.
    """
    words = [word.partition("=")[0].replace("_", "-") for word in args]
    implies_openai = {"--provider", "--base-url", "--help", "-h"}.intersection(words)
    policy = option_value("--policy", args) or ("openai" if implies_openai else custom_policy or "random")
    options = options_type(policy)
    for option in words:
        owners = [name for name in (*POLICIES, "MODULE:FUNCTION") if option in _names(options_type(name))]
        if owners and option not in (*_names(options), *_names(EvalConfig)):
            chosen = policy if isinstance(policy, str) else "of this script"
            also = f" (or {', '.join(owners[1:])})" if owners[1:] else ""
            raise UsageError(f"{option} is not an option of the {chosen} policy: choose --policy {owners[0]}{also}")
    return options


def _names(options: type[Any]) -> list[str]:
    """List the command-line options of a type."""
    return [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(options)]


def option_value(option: str, args: Sequence[str]) -> str | None:
    """Return the value of an option on a command line, before all options are known."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(option, f"--{option[2:].replace('-', '_')}", dest="value")  # tyro accepts both
    try:
        value: str | None = parser.parse_known_args(args)[0].value
    except argparse.ArgumentError:
        return None  # the main parser reports an option without a value
    return value


def parse_with_policy(
    config: ConfigT, options: PolicyOptions, args: Sequence[str], prog: str, about: str
) -> tuple[ConfigT, PolicyOptions]:
    """Parse the options of a command and of its policy, with the values of `config` and `options` as defaults."""
    parts = [(name, Annotated[type(value), OmitArgPrefixes]) for name, value in (("play", config), ("policy", options))]
    parts_type = dataclasses.make_dataclass("Options", parts)
    parsed: Any = tyro.cli(parts_type, args=args, default=parts_type(config, options), prog=prog, description=about)
    return parsed.play, parsed.policy


def _trained_options(checkpoint: Path, policy_type: type[PolicyOptions]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a checkpoint, which are defaults: those of the evaluation, and those of the policy.

    Sampling options are only included if the policy has them, and the model only if the policy loads checkpoints.

    Raises:
        UsageError: The checkpoint has no valid `vlmgym.json`.
    """
    record = TrainedRecord.read(checkpoint)
    options = {"max_turns": record.max_turns, "seed": record.first_seed, **dataclasses.asdict(record.prompts)}
    if record.blank:
        options["images"] = "blank"
    accepted = {field.name for field in dataclasses.fields(policy_type)}
    policy_options: dict[str, Any] = {}
    for name in ("temperature", "top_p", "max_tokens", "enable_thinking"):
        if name in accepted and getattr(record, name) is not None:
            policy_options[name] = getattr(record, name)
    if "dtype" in accepted:  # the policy loads a checkpoint
        for folder in (checkpoint, checkpoint / "model"):
            if (folder / "config.json").is_file():
                policy_options["model"] = str(folder)
    return options, policy_options


def trained_games(record: TrainedRecord, config: EvalConfig) -> Games:
    """Make the games of a checkpoint at the stages that training had reached.

    Raises:
        UsageError: Another option changes the games, or there are more episodes than questions held out for
            validation.
    """
    data = parse_config_fields(chain.from_iterable(config.overrides))
    if [*data] == ["data"]:  # names the data of the record, so that it may be opened
        allow_data(str(data["data"]))
        config = dataclasses.replace(config, overrides=())
    if changed := config.changed_options():
        raise UsageError(f"--as-trained sets the difficulty of the games: leave out {', '.join(changed)}")
    kept = record.validation_questions
    if kept is not None and config.seed <= record.first_seed and not config.all_rows and config.episodes > kept:
        raise UsageError(f"{kept:,} questions were held out for validation: lower --episodes {config.episodes:,}")
    return record.reached_games()


def run_evaluation(
    games: Games | Sequence[str],
    config: EvalConfig,
    options: PolicyOptions | None = None,
    default_folder: RunFolder | None = None,
    custom_policy: CustomFunction | None = None,
    suite: str | None = None,
) -> RunSummary | None:
    """Play the configured episodes, write all files of the run, and return its summary; None with `config.dry_run`.

    Exits with code 1 if an episode ended with an error.

    Args:
        games: Games, or their ids or names, or a curriculum.
        config: The options.
        options: Options of the policy.
        default_folder: Output folder if `config` names none; None: a new folder under `logs`.
        custom_policy: Default policy if `config.policy` is None.
        suite: Name of the suite of the games and settings, if any.
    """
    played: Games
    if isinstance(games, Curriculum):
        played = games
    else:
        played = [config.make_game(game) if isinstance(game, str) else game for game in games]
    if config.all_rows:
        config = dataclasses.replace(config, episodes=rows_of(played), all_rows=False)
    game_list = all_games(played)
    if config.dry_run:
        _print_dry_run(played, config, options)
        return None
    implied = "openai" if isinstance(options, OpenAIOptions) else custom_policy or "random"
    choice: PolicySpec = implied if config.policy is None else config.policy
    policy = make_policy(choice, options)
    check_run(policy, played, config)
    if config.samples > 1 or config.skins:
        if isinstance(played, Curriculum):
            raise UsageError(f"a curriculum cannot be repeated: remove {'--skins' if config.skins else '--samples'}")
        if config.skins and isinstance(policy, StatePolicy):
            raise UsageError("--skins needs a model that sees images")
        for skin in get_args(SkinName) if config.skins else ():
            check_run(policy, played, dataclasses.replace(config, skins=False, skin=skin))
        if config.resume is not None and (config.resume / RUN).exists():
            raise UsageError(f"{config.resume} is a single run: resume it without --samples and --skins")
        root = config.resume or config.output_dir or _new_folder(game_list, policy)
        _play_again(root, played, config, options, custom_policy, suite)
        return None
    check_loggers(tensorboard=config.tensorboard, wandb=config.wandb)
    for game in game_list:
        with suppress(GameError):  # an episode may fail; the game's data must open before the folder is created
            Episode(game, config.seed)
    folder = _folder(config, default_folder, game_list, policy)
    console, progress_console = make_console(), make_console(stderr=True)
    with evaluate_run(folder, played, policy, config, progress_console, suite=suite) as done:
        run, summary = done.run, done.summary
        if (normalised := suite_summary(run.config, summary.games)) is not None:
            summary = summary.model_copy(update={"suite": normalised})
            folder.write_summary(summary)
        # Print scores first, since videos may take minutes.
        console.print(summary_table(run.config, summary))
        for note in filter(None, (control_note(config), bias_note(summary.games))):
            console.print(note)
        if suite is not None and summary.suite is not None:
            console.print(suite_table(suite, summary.suite).rich())
        write_curves(run)
        if config.videos:  # `done.workers` may start processes
            write_videos(run, config.videos, done.workers)
        if config.report:
            write_report(run, summary, done.workers)
        copies = copy_results(run, folder, summary) if isinstance(folder, ScriptFolder) else []
    _print_paths(console, run, config, copies)
    _report_unfinished(folder, summary, done.session, progress_console)
    return summary


def _play_again(
    root: Path,
    played: Games,
    config: EvalConfig,
    options: PolicyOptions | None,
    custom_policy: CustomFunction | None,
    suite: str | None,
) -> None:
    """Play the same episodes in each skin, or `config.samples` times, within one budget.

    The runs are in folders of `root` with the names of the skins, or 1, 2, ...
    """
    budget, failed = config.budget, False
    skins: Sequence[SkinName] = get_args(SkinName) if config.skins else [config.skin] * config.samples
    for number, skin in enumerate(skins):
        folder = root / (skin if config.skins else str(number + 1))
        resume = folder if config.resume is not None and (folder / RUN).exists() else None
        settings: dict[str, Any] = {"skin": skin, "skins": False, "samples": 1, "budget": budget}
        sample = dataclasses.replace(config, resume=resume, output_dir=folder, **settings)
        if number and not config.skins and isinstance(options, SamplingOptions) and options.sample_seed is not None:
            options = dataclasses.replace(options, sample_seed=options.sample_seed + 1)
        try:
            run_evaluation(played, sample, options, None, custom_policy, suite)
        except SystemExit:  # episodes with an error, which were reported
            failed = True
        except KeyboardInterrupt as error:
            error.args = (f"interrupted; continue with the same options and --resume {root}",)
            raise
        summary = open_run(folder).last_summary()
        if summary.stop_reason:
            break
        games = summary.games.values()
        tokens = sum((game.prompt_tokens or 0) + (game.completion_tokens or 0) for game in games)
        budget = budget.after(tokens, sum(game.cost or 0.0 for game in games))
    try:
        if config.skins:
            table(TableConfig(runs=(root,), rows=("skin",)))
        else:
            repeats(RepeatsConfig(runs=(root,)))
    except UsageError as error:  # no episode has a result in every run
        make_console(stderr=True).print(str(error), soft_wrap=True)
    if failed:
        raise SystemExit(UNFINISHED)


def _print_dry_run(played: Games, config: EvalConfig, options: PolicyOptions | None) -> None:
    """Print an estimate of the episodes that have no result yet."""
    if isinstance(played, Curriculum):
        raise UsageError("--dry-run does not work with --curriculum, whose stages may depend on results")
    finished = set() if config.resume is None else {*open_run(config.resume).scores}
    estimate = dry_run(played, config, options, finished)
    for name, words in estimate.lines(config, options):
        make_console().print(f"{name:<14} {words}", soft_wrap=True)


def rows_of(played: Games) -> int:
    """Return the number of rows in the games' data, which must be the same for all games."""
    if isinstance(played, Curriculum):
        raise UsageError("--all-rows does not work with --curriculum")
    rows = {}
    for game in played:
        if not isinstance(game, DataTask) or game.config.data is None:
            raise UsageError(f"--all-rows plays every row of --config data=..., which {game.name} does not have")
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
    return RunFolder(chosen or _new_folder(games, policy))


def _new_folder(games: Sequence[Game[Any, Any]], policy: Policy) -> Path:
    """Name a folder after games, policy and time, with microseconds, because several runs may start together."""
    what = re.sub(r"[^\w.+-]", "_", "+".join(dict.fromkeys(game.name for game in games)))
    who = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in re.split(r"[/\\]", policy.name)[-1])
    return free_path(Path("logs") / f"{what[:80]}-{who[-60:]}-{datetime.now():%Y%m%d-%H%M%S-%f}")


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
