"""What a model is worth before and after: held-out positions, and whole episodes by the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from training.core.states import FIRST_VALIDATION_SEED, check_validation_size
from training.local.actor import Actor
from training.local.config import TrainConfig
from training.local.held_out import Eye, answer_held_out, validation_episodes
from training.local.live_policy import LiveOptions, LivePolicy
from vlmgym.curriculum import Curriculum
from vlmgym.evaluation.artifacts import write_curves, write_summary
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.report import write_report
from vlmgym.evaluation.run import make_run_record, play_run
from vlmgym.records.run import RunSummary
from vlmgym.records.run_folder import RunFolder
from vlmgym.records.store import open_run
from vlmgym.sandbox.core.game import Game
from vlmgym.workers.pool import ProcessPool


def check_evaluation(config: TrainConfig, curriculum: Curriculum) -> None:
    """Refuse to measure on more rows of a table than are held out.

    Raises:
        UsageError: There are fewer, or the data cannot be opened.
    """
    games, share, wanted = last_games(curriculum), config.states.validation_fraction, config.evaluation
    check_validation_size(games, share, wanted.states, "--evaluation.states")
    check_validation_size(games, share, wanted.episodes, "--evaluation.episodes")


def last_games(curriculum: Curriculum) -> list[Game[Any, Any]]:
    """The games at their last stages, each once."""
    return list(dict.fromkeys(entry.stages[-1].game for entry in curriculum.entries))


def measure(
    actor: Actor, config: TrainConfig, curriculum: Curriculum, step: int, folder: Path, console: Console
) -> dict[str, Any]:
    """Answer held-out positions, and play whole episodes on held-out seeds, of the games at their last stages.

    Args:
        actor: The model.
        config: How many of each.
        curriculum: The games.
        step: Steps of reinforcement learning that the model has had.
        folder: Where records of episodes go.
        console: Where progress is shown.

    Returns:
        What `result.json` says: `states` as `HeldOut.plain`, and `episodes` with mean score and interval of each game.
    """
    found: dict[str, Any] = {}
    if config.evaluation.states:
        last = Curriculum.of([entry.stages[-1].game for entry in curriculum.entries])
        eye: Eye = "blank" if config.blank else "open"
        episodes = validation_episodes(config, last, last.begin(), config.evaluation.states)
        answered = answer_held_out(actor, config, episodes, eye)
        found["states"] = answered.plain()
        console.print(f"{folder.name}: {answered.words()}", soft_wrap=True)
    if config.evaluation.episodes:
        found["episodes"] = {}
        for number, games in enumerate(in_runs(last_games(curriculum)), 1):
            place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
            summary = play_whole_episodes(actor, config, games, step, place, console)
            for game, one in summary.games.items():
                name = game if number == 1 else f"{game} ({number})"
                found["episodes"][name] = {
                    "score": one.score_mean,
                    "interval": one.score_ci,
                    "episodes": one.episodes,
                }
    return found


def in_runs(games: Sequence[Game[Any, Any]]) -> list[list[Game[Any, Any]]]:
    """Games in as few runs as there can be: in a run of the evaluator all games have different ids."""
    runs: list[dict[str, Game[Any, Any]]] = []
    for game in games:
        free = next((run for run in runs if game.id not in run), None)
        if free is None:
            runs.append(free := {})
        free[game.id] = game
    return [list(run.values()) for run in runs]


def play_whole_episodes(
    actor: Actor, config: TrainConfig, games: Sequence[Game[Any, Any]], step: int, folder: Path, console: Console
) -> RunSummary:
    """Play games as any other policy does and write a run's folder: records, curves and a page.

    Args:
        actor: The model.
        config: How many episodes, how many turns.
        games: The games.
        step: Steps of reinforcement learning that the model has had.
        folder: Where to.
        console: Where progress is shown.

    Raises:
        VlmgymError: The run failed.
    """
    wanted = EvalConfig(
        episodes=config.evaluation.episodes,
        max_turns=config.evaluation.turns,
        seed=FIRST_VALIDATION_SEED,
        workers=0,
        history=config.play.history,
        history_images=config.play.history_images,
        reward=config.reward,
        videos=0,
    )
    options = LiveOptions(
        step=step,
        temperature=config.evaluation.temperature,
        max_tokens=config.rollout.max_tokens,
        batch=config.rollout.batch,
        blank=config.blank,
    )
    policy = LivePolicy(actor, options)
    place = RunFolder(folder)
    with place.reserved(), ProcessPool(0) as workers:
        place.output.remove(place.folder)  # what an interrupted run left there
        place.write_config(make_run_record(wanted, games, policy))
        part = play_run(place, games, policy, wanted, None, workers, console, standalone=False)
        run = open_run(place)
        summary = write_summary(run, part)
        write_curves(run)
        write_report(run, summary, workers, console)
    return summary
