"""The `vlmgym` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import tyro

from vlmgym import __version__
from vlmgym.errors import UsageError, did_you_mean, importing
from vlmgym.terminal import parse_options, reporting_errors

COMMANDS = {
    "eval": "vlmgym.cli.eval",
    "train": "vlmgym.training.config",
    "play": "vlmgym.cli.play",
    "bench": "vlmgym.cli.bench",
    "bench-model": "vlmgym.cli.bench_model",
    "check-vision": "vlmgym.cli.check_vision",
    "view": "vlmgym.pages.server",
    "report": "vlmgym.pages.report",
    "rescore": "vlmgym.evaluation.rescore",
    "compare": "vlmgym.pages.compare",
    "diagnose": "vlmgym.pages.diagnose",
    "table": "vlmgym.evaluation.table",
    "repeats": "vlmgym.evaluation.repeats",
    "export": "vlmgym.cli.export",
    "verify": "vlmgym.benchmark.verify",
    "leaderboard": "vlmgym.pages.leaderboard",
    "gallery": "vlmgym.pages.gallery",
    "data": "vlmgym.cli.data",
    "games": "vlmgym.cli.games",
    "new-game": "vlmgym.cli.new_game",
    "doctor": "vlmgym.cli.doctor",
}
"""Module of each command, which is imported on demand.

The command `a-b` is the function `a_b` of the module, and its options are the class `ABConfig`. The options of `eval`,
`check-vision` and `train` depend on others; functions `run_A_B` parse their command lines. The module's docstring says
what the command does.
"""


def summary(docstring: str) -> str:
    """Return what a command does, for its help and the list of commands, from the docstring of its module."""
    words = " ".join(docstring.partition("\n\n")[0].split()).partition("`: ")[2]
    return words[:1].upper() + words[1:]


def read_docstring(module: str) -> str:
    """Read the docstring of a module without importing it."""
    path = Path(__file__).parents[2] / f"{module.replace('.', '/')}.py"
    return path.read_text(encoding="utf-8").split('"""')[1]


def main(args: Sequence[str] | None = None) -> None:
    """Run a subcommand; usage errors exit with code 2, failures with 1, both with a one-line message."""
    with reporting_errors():
        words = sys.argv[1:] if args is None else list(args)
        if words == ["--version"]:
            print(f"vlmgym {__version__}")
            return
        if words and not words[0].startswith("-"):
            _run(*words)
            return
        commands: dict[str, Callable[..., Any]]
        commands = {
            name: make_dataclass(name, (), namespace={"__doc__": summary(read_docstring(module))})
            for name, module in COMMANDS.items()
        }
        about = "Visual game environments for vision-language models. vlmgym --version prints the version."
        tyro.extras.subcommand_cli_from_dict(commands, args=words, prog="vlmgym", description=about)


def _run(name: str, *args: str) -> None:
    if name not in COMMANDS:
        meant = did_you_mean(name, COMMANDS)
        raise UsageError(f"unknown command {name!r}{meant}; the commands are {', '.join(COMMANDS)}")
    if name == "train":
        run_train(args)
        return
    module, function = import_module(COMMANDS[name]), name.replace("-", "_")
    about = summary(module.__doc__ or "")
    if name in ("eval", "check-vision"):
        getattr(module, f"run_{function}")(args, about)
        return
    options = getattr(module, f"{function.title().replace('_', '')}Config")
    getattr(module, function)(parse_options(options, args, f"vlmgym {name}", about))


def run_train(args: Sequence[str]) -> None:
    """Run `vlmgym train` with the options of a command line."""
    from vlmgym.training.config import parse_known, read_config

    resume = parse_known(args).resume
    config = read_config(args) if resume is None else None
    with importing("vlmgym train", "train"):
        from vlmgym.training.run import TrainingRun
        from vlmgym.training.train import run_training
    if config is None:
        run_training(*TrainingRun.reopen(Path(resume), args))
    else:
        run_training(TrainingRun.new(config), config)
