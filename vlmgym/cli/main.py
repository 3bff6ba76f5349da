"""The `vlmgym` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import tyro

import vlmgym
from vlmgym.cli.console import reporting_errors


class Command(NamedTuple):
    """A subcommand, whose module is imported on demand.

    Attributes:
        module: The module.
        options: Name of the type of its options (`eval` adds the options of a policy).
        action: Name of the function that takes such options.
        summary: First line of the docstring of `options`.
    """

    module: str
    options: str
    action: str
    summary: str


COMMANDS = {
    "eval": Command(
        "vlmgym.cli.eval_command",
        "EvalCommand",
        "evaluate",
        "Evaluate a policy: play episodes and write records, curves, videos and a report.",
    ),
    "play": Command(
        "vlmgym.cli.play", "PlayConfig", "play", "Play a game in a window and see the prompts a model would get."
    ),
    "bench": Command(
        "vlmgym.cli.bench",
        "BenchConfig",
        "bench",
        "Measure throughput for about half a minute and recommend a number of workers and environments.",
    ),
    "bench-model": Command(
        "vlmgym.cli.bench_prompt",
        "BenchModelConfig",
        "bench_images_or_prompt",
        "Measure a model server with game images or a prompt: time to first token, tokens and requests per second.",
    ),
    "report": Command(
        "vlmgym.evaluation.report.command",
        "ReportConfig",
        "report",
        "Write report.html of a saved run: scores, curves and an episode viewer.",
    ),
    "rescore": Command(
        "vlmgym.evaluation.rescore",
        "RescoreConfig",
        "rescore",
        "Apply other reward settings to a saved run without playing; scores stay the same.",
    ),
    "compare": Command(
        "vlmgym.evaluation.compare",
        "CompareConfig",
        "compare",
        "Compare two runs on the same seeds: paired differences with intervals, and a page with both.",
    ),
    "export": Command(
        "vlmgym.evaluation.export",
        "ExportConfig",
        "export",
        "Export turns of a saved run as SFT data, or its results for the Hugging Face Hub, Every Eval Ever or Inspect.",
    ),
    "verify": Command(
        "vlmgym.evaluation.verify",
        "VerifyConfig",
        "verify",
        "Replay the responses of a saved run without its model, and check scores, states, metrics and summary.",
    ),
    "leaderboard": Command(
        "vlmgym.evaluation.leaderboard.command",
        "LeaderboardConfig",
        "leaderboard",
        "Rank runs and submissions of a suite on one page, with their profiles, after verifying their scores.",
    ),
    "submit": Command(
        "vlmgym.evaluation.submission.command",
        "SubmitConfig",
        "submit",
        "Make a submission from a run of a suite, or check one.",
    ),
    "gallery": Command(
        "vlmgym.cli.gallery.command",
        "GalleryConfig",
        "gallery",
        "Render every game at every level into one page, with prompts and scored responses.",
    ),
    "data": Command(
        "vlmgym.cli.data", "DataConfig", "data", "Check the data of a task for bad rows, or download a dataset."
    ),
    "games": Command(
        "vlmgym.cli.games",
        "GamesConfig",
        "games",
        "List the installed games and published settings, or show the rules and config fields of one.",
    ),
    "doctor": Command(
        "vlmgym.cli.doctor",
        "DoctorConfig",
        "doctor",
        "Print the versions that results depend on, the machine, and the extras with their missing packages.",
    ),
}


def main(args: Sequence[str] | None = None) -> None:
    """Run a subcommand; usage errors exit with code 2, failures with 1, both with a one-line message."""
    with reporting_errors():
        words = sys.argv[1:] if args is None else list(args)
        if words == ["--version"]:
            print(f"vlmgym {vlmgym.__version__}")
            return
        commands: dict[str, Callable[..., Any]]
        commands = {name: type(name, (), {"__doc__": command.summary}) for name, command in COMMANDS.items()}
        action: Callable[[Any], object] | None = None
        if words and (chosen := COMMANDS.get(words[0])) is not None:
            name, module = words[0], import_module(chosen.module)
            commands[name], action = getattr(module, chosen.options), getattr(module, chosen.action)
            if name == "eval":
                words, commands[name] = module.options_for(words)
        about = "Visual game environments for vision-language models. vlmgym --version prints the version."
        options = tyro.extras.subcommand_cli_from_dict(commands, args=words, prog="vlmgym", description=about)
        if action is not None:
            action(options)
