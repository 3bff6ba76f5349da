"""Whole episodes by the evaluator, on held-out seeds: records, curves and a page, as of any other policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from training.local.actor import Actor
from training.local.config import TrainConfig
from training.local.live_policy import LiveOptions, LivePolicy
from vlmgym.curriculum import Curriculum
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.playing import asked_for, play_run
from vlmgym.evaluation.record import RunSummary
from vlmgym.evaluation.report import LabelledRun, write_report
from vlmgym.evaluation.results import draw_results, write_summary
from vlmgym.evaluation.run_folder import RunFolder
from vlmgym.evaluation.stored import find_run
from vlmgym.evaluation.workers import Workers

FIRST_SEED = 1_000_000
"""Episodes of training begin at rows, which are numbers from 0."""


def play_whole_episodes(
    actor: Actor, config: TrainConfig, curriculum: Curriculum, step: int, folder: Path, console: Console
) -> RunSummary:
    """Play the games of the curriculum's last stages and write a run's folder.

    Args:
        actor: The model.
        config: How many episodes, how many turns.
        curriculum: The games.
        step: Steps of reinforcement learning that the model has had.
        folder: Where to.
        console: Where progress is shown.

    Raises:
        VlmgymError: The run failed.
    """
    wanted = EvalConfig(
        episodes=config.evaluation.episodes,
        turns=config.evaluation.turns,
        seed=FIRST_SEED,
        workers=0,
        history=config.play.history,
        history_images=config.play.history_images,
        reward=config.reward,
        video=False,
    )
    rollout = replace(config.rollout, temperature=config.evaluation.temperature)
    policy = LivePolicy(
        actor,
        LiveOptions(step=step, temperature=rollout.temperature, max_tokens=rollout.max_tokens, batch=rollout.batch),
    )
    games = list({entry.stages[-1].game.id: entry.stages[-1].game for entry in curriculum.entries}.values())
    place = RunFolder(folder)
    with place.reserved(), Workers(0) as workers:
        place.make_way()
        place.begin(asked_for(wanted, games, policy))
        part = play_run(place, games, policy, wanted, None, workers, console)
        run = find_run(place)
        summary = write_summary(run, part)
        draw_results(run, None, workers, console)
        write_report(place, LabelledRun.of(run.asked, run.episodes, summary), workers, console)
    return summary
