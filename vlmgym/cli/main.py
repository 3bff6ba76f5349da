"""The `vlmgym` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from vlmgym import __version__
from vlmgym.errors import UsageError, did_you_mean, importing
from vlmgym.terminal import parse_options, reporting_errors


class Command(NamedTuple):
    """A subcommand, whose module is imported on demand.

    The command `a-b` is the function `a_b` of the module, and its options are the class `ABConfig`. The options of
    `eval`, `check-vision` and `train` depend on others; functions `run_A_B` parse their command lines.

    Attributes:
        module: Name of the module.
        summary: What the command does, for its help and the list of commands.
    """

    module: str
    summary: str


COMMANDS = {
    "eval": Command(
        "vlmgym.cli.eval", "Evaluate a policy: play episodes and write records, curves, videos and a report."
    ),
    "train": Command(
        "vlmgym.training.config", "Train a Qwen-VL on games by GRPO, PPO, distillation or DAgger, on one machine."
    ),
    "play": Command("vlmgym.cli.play", "Play a game in a window and see the prompts a model would get."),
    "bench": Command(
        "vlmgym.cli.bench",
        "Measure throughput for about half a minute and recommend a number of workers and environments.",
    ),
    "bench-model": Command(
        "vlmgym.cli.bench_model",
        "Measure a model server with game images or a prompt, without retries: first token, tokens and requests/s.",
    ),
    "check-vision": Command(
        "vlmgym.cli.check_vision",
        "Ask a model for digits in images, to find out whether the right images reach it at the right turn.",
    ),
    "view": Command(
        "vlmgym.pages.server", "Open a local web app over all runs in a folder: live progress, comparisons and play."
    ),
    "report": Command("vlmgym.pages.report", "Write report.html of a saved run: scores, curves and an episode viewer."),
    "rescore": Command(
        "vlmgym.evaluation.rescore", "Apply other reward settings to a saved run without playing; scores stay the same."
    ),
    "compare": Command(
        "vlmgym.pages.compare",
        "Compare two runs on the same seeds: paired differences with intervals, and a page with both.",
    ),
    "diagnose": Command(
        "vlmgym.pages.diagnose",
        "Find out whether the wrong turns of a run are mistakes in seeing, in the rules, or in planning.",
    ),
    "table": Command(
        "vlmgym.evaluation.table", "Print the mean scores of several runs as Markdown, LaTeX, CSV or JSON."
    ),
    "repeats": Command(
        "vlmgym.evaluation.repeats",
        "Summarise runs that repeat the same seeds: best and worst of k, pass@k, and variance due to sampling.",
    ),
    "export": Command(
        "vlmgym.cli.export", "Export turns of a run as SFT data, or its results for the Hugging Face Hub or Inspect."
    ),
    "verify": Command(
        "vlmgym.benchmark.verify",
        "Replay the responses of a saved run without its model, and check scores, states, metrics and summary.",
    ),
    "leaderboard": Command(
        "vlmgym.pages.leaderboard", "Rank runs of a suite on one page, with profiles, after verifying their scores."
    ),
    "gallery": Command("vlmgym.pages.gallery", "Render every game at every level into one page, with prompts."),
    "data": Command("vlmgym.cli.data", "Check the data of a task for bad rows, or download a dataset."),
    "games": Command(
        "vlmgym.cli.games",
        "List the installed games and published settings, or show the rules and config fields of some.",
    ),
    "new-game": Command(
        "vlmgym.cli.new_game", "Write a package with an example game and its tests, to be turned into your own game."
    ),
    "doctor": Command(
        "vlmgym.cli.doctor",
        "Print the versions that results depend on, the machine, and the extras with their missing packages.",
    ),
}


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
            name: make_dataclass(name, (), namespace={"__doc__": command.summary}) for name, command in COMMANDS.items()
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
    command = COMMANDS[name]
    module, function = import_module(command.module), name.replace("-", "_")
    if name in ("eval", "check-vision"):
        getattr(module, f"run_{function}")(args, command.summary)
        return
    options = getattr(module, f"{function.title().replace('_', '')}Config")
    getattr(module, function)(parse_options(options, args, f"vlmgym {name}", command.summary))


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
