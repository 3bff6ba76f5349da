"""The `vlmgym` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import tyro

import vlmgym
from vlmgym.cli.as_trained import trained_games, with_trained_options
from vlmgym.cli.bench import BenchConfig, bench
from vlmgym.cli.bench_model import BenchModelConfig, bench_model
from vlmgym.cli.bench_prompt import bench_prompt
from vlmgym.cli.console import reporting_errors
from vlmgym.cli.data import DataCheckConfig, DataFetchConfig, check_data, fetch_data
from vlmgym.cli.doctor import doctor
from vlmgym.cli.eval import policy_options, run_evaluation, with_options
from vlmgym.cli.gallery.command import GalleryConfig, gallery
from vlmgym.cli.games import print_games
from vlmgym.cli.play import PlayConfig, play
from vlmgym.errors import UsageError
from vlmgym.evaluation.compare import CompareConfig, compare
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.export import ExportConfig, export
from vlmgym.evaluation.leaderboard.command import LeaderboardConfig, leaderboard
from vlmgym.evaluation.report.command import ReportConfig, report
from vlmgym.evaluation.rescore import RescoreConfig, rescore
from vlmgym.evaluation.verify import VerifyConfig, verify
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import game_ids, load_games


@dataclass(frozen=True, kw_only=True)
class EvalCommand(EvalConfig):
    """Evaluate a policy: play episodes and write records, curves, videos and a report."""

    game: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...")] = ()
    """Game ids or names (2048), or published settings (g1/swap); see vlmgym games."""
    games: Annotated[tuple[tuple[str, ...], ...], tyro.conf.arg(metavar="GAME ..."), tyro.conf.UseAppendAction] = ()
    """Same as the positional games."""
    curriculum: Path | None = None
    """Curriculum to play instead of games: a file or a built-in name (docs/curricula.md); --episodes is the total."""
    suite: str | None = None
    """Suite to play instead of games (docs/suites.md), which also determines their settings; or all, for every game at
    the given settings."""
    as_trained: Path | None = None
    """Checkpoint whose games, difficulty, turn limit, history, reward and sampling are played instead, on validation
    seeds (its vlmgym.json). Other options override it, except those of games. The vllm and transformers policies load
    the checkpoint itself, unless --model is given."""
    full_curriculum: bool = False
    """With --as-trained, play its curriculum from the first stage, instead of the stages that training had reached."""


def evaluate_command(args: Sequence[str]) -> tuple[list[str], Callable[..., None]]:
    """Build the command `eval`, whose options depend on the chosen policy; return its command line and the command."""
    words, trained = with_trained_options(args)
    both: Any = with_options(EvalCommand, policy_options(words))

    def command(chosen: Any) -> None:
        config = chosen.config
        games, played = (*config.game, *chain.from_iterable(config.games)), None
        if config.suite is not None:
            if games or config.curriculum is not None or config.as_trained is not None:
                raise UsageError("--suite names the games: leave out games, --curriculum and --as-trained")
            if config.suite != "all":
                run_evaluation((), config, chosen.options, suite=config.suite)
                return
            games = tuple(game_ids())
        if trained is not None:
            if games or config.curriculum is not None:
                raise UsageError("--as-trained names the games: leave out games and --curriculum")
            played = trained_games(trained, config.full_curriculum, config)
        elif config.full_curriculum:
            raise UsageError("--full-curriculum needs --as-trained")
        elif not games and config.curriculum is None:
            raise UsageError(f"name a game: vlmgym eval {'|'.join(found.name for found in load_games()[0].values())}")
        run_evaluation(games, config, chosen.options, curriculum=config.curriculum, played=played)

    command.__annotations__ = {"chosen": Annotated[both, tyro.conf.arg(name="")]}
    command.__doc__ = EvalCommand.__doc__
    return words, command


def data_command(
    config: Annotated[
        Annotated[DataCheckConfig, tyro.conf.subcommand("check")]
        | Annotated[DataFetchConfig, tyro.conf.subcommand("fetch")],
        tyro.conf.arg(name=""),
    ],
) -> None:
    """Check the data of a task for bad rows, or download a dataset."""
    if isinstance(config, DataCheckConfig):
        check_data(config)
    else:
        fetch_data(config)


def games_command(
    game: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...")] = (),
) -> None:
    """List the installed games and published settings, or show the rules and config fields of one.

    Args:
        game: Names or ids of games, or names of published settings, to show.
    """
    if game:
        print_games(game)
        return
    loaded, failed = load_games()
    summaries = {game_id: (found.__doc__ or "").strip().partition("\n")[0] for game_id, found in loaded.items()}
    for game_id, summary in sorted({**summaries, **{name: str(error) for name, error in failed.items()}}.items()):
        print(f"{game_id:<16} {summary}")
    print("\nPublished settings:")
    for name, preset in PRESETS.items():
        print(f"\n{name}\n{preset.words()}")


ACTIONS: dict[type, Callable[[Any], object]] = {
    PlayConfig: play,
    BenchConfig: bench,
    BenchModelConfig: lambda config: (bench_model if config.prompt is None else bench_prompt)(config),
    ReportConfig: report,
    RescoreConfig: rescore,
    CompareConfig: compare,
    ExportConfig: export,
    VerifyConfig: verify,
    LeaderboardConfig: leaderboard,
    GalleryConfig: gallery,
}
COMMANDS: dict[str, Callable[..., Any]] = {
    "play": PlayConfig,
    "bench": BenchConfig,
    "bench-model": BenchModelConfig,
    "report": ReportConfig,
    "rescore": RescoreConfig,
    "compare": CompareConfig,
    "export": ExportConfig,
    "verify": VerifyConfig,
    "leaderboard": LeaderboardConfig,
    "gallery": GalleryConfig,
    "data": data_command,
    "games": games_command,
    "doctor": doctor,
}
"""Functions, and types of options whose function is in `ACTIONS`."""


def main(args: Sequence[str] | None = None) -> None:
    """Run a subcommand; usage errors exit with code 2, failures with 1, both with a one-line message."""
    with reporting_errors():
        words = sys.argv[1:] if args is None else list(args)
        if words == ["--version"]:
            print(f"vlmgym {vlmgym.__version__}")
            return
        expanded, command = evaluate_command(words if words[:1] == ["eval"] else [])
        words, commands = expanded or words, {"eval": command, **COMMANDS}
        about = "Visual game environments for vision-language models. vlmgym --version prints the version."
        options = tyro.extras.subcommand_cli_from_dict(commands, args=words, prog="vlmgym", description=about)
        if options is not None:
            ACTIONS[type(options)](options)
