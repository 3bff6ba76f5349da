"""The `vlmgym` command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from vlmgym.bench import BenchConfig, bench
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.output import Output
from vlmgym.evaluation.script import run_evaluation
from vlmgym.options import reporting_errors
from vlmgym.play import PlayConfig, play
from vlmgym.sandbox.registry import game_class, game_ids

T = TypeVar("T")
Merged = Annotated[T, tyro.conf.arg(name="")]
"""Options of a dataclass as they are, without the name of the parameter in front."""


@dataclass(frozen=True, kw_only=True)
class EvalCommand(EvalConfig):
    """Play episodes of a game with a policy; leave records, curves and videos."""

    game: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME")]
    """Id or name of the game, for instance 2048."""


def evaluate_command(config: Merged[EvalCommand]) -> None:
    """Play episodes of a game with a policy; leave records, curves and videos."""
    name = game_class(config.game).name
    run_evaluation(config.game, config, Output(config.out or Path.cwd(), f"test_{name}"))


def play_command(config: Merged[PlayConfig]) -> None:
    """Play a game by hand in a window, and see what a model would be told."""
    play(config)


def bench_command(config: Merged[BenchConfig]) -> None:
    """Measure on this machine, about half a minute, and recommend numbers of workers and environments."""
    bench(config)


def games_command() -> None:
    """List the games that are installed."""
    for game_id in game_ids():
        try:
            summary = (game_class(game_id).__doc__ or "").strip().partition("\n")[0]
        except UsageError as error:
            summary = f"does not load: {error}"
        print(f"{game_id:<16} {summary}")


COMMANDS: dict[str, Callable[..., Any]] = {
    "eval": evaluate_command,
    "play": play_command,
    "bench": bench_command,
    "games": games_command,
}


def main(args: Sequence[str] | None = None) -> None:
    """Run a subcommand; a user's mistake ends in one sentence and exit code 2, a failure in one and 1."""
    with reporting_errors():
        tyro.extras.subcommand_cli_from_dict(COMMANDS, args=args, prog="vlmgym")
