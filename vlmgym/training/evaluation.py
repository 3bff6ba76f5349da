"""Evaluation before and after training: single responses to validation states, and whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from vlmgym.curriculum import Curriculum
from vlmgym.errors import EpisodeError, VlmgymError
from vlmgym.evaluation import EvalConfig, RunFolder, evaluate, evaluate_run, write_curves
from vlmgym.pages.report import write_report
from vlmgym.policies.base import PolicyOptions, Prompt, Reply
from vlmgym.policies.batching import BatchPolicy
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.runs.record import RunSummary
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.prompt import blank
from vlmgym.statistics import confidence_interval
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.config import TrainConfig
from vlmgym.training.engine.families import EncodedPrompt
from vlmgym.training.records import score_summary
from vlmgym.training.states import check_validation_size
from vlmgym.training.trainer import Trainer
from vlmgym.training.validation import ValidationResult, validate, validation_episodes


@dataclass(frozen=True, kw_only=True)
class TrainedPolicyOptions(PolicyOptions):
    """Options of `TrainedPolicy`, which are written to records; `step` counts steps of reinforcement learning."""

    step: int
    temperature: float
    max_tokens: int
    batch_size: int
    blank: bool


class TrainedPolicy(BatchPolicy):
    """The model in training as a policy; responds to all pending prompts as one batch."""

    name = "training"
    counts_tokens = True
    options: TrainedPolicyOptions

    def __init__(self, trainer: Trainer, options: TrainedPolicyOptions) -> None:
        super().__init__(options)
        self.max_batch_size = options.batch_size
        self._trainer = trainer
        if options.blank:
            self.transform = blank

    async def respond_to_batch(self, images: list[list[Any]], prompts: list[Prompt]) -> list[Reply | VlmgymError]:
        """Generate a response to each prompt."""
        actor, options = self._trainer.actor, self.options
        replies: dict[int, Reply | VlmgymError] = {}
        encoded: dict[int, EncodedPrompt] = {}
        for number, (shown, prompt) in enumerate(zip(images, prompts)):
            try:
                encoded[number] = actor.encoder.encode(prompt.conversation, shown)
            except EpisodeError as error:
                replies[number] = error
        seeds = [_token_seed(prompts[number]) for number in encoded]
        responses = self._trainer.generate([*encoded.values()], seeds, options.max_tokens, options.temperature)
        for (number, prompt_tokens), response in zip(encoded.items(), responses):
            replies[number] = actor.reply(prompt_tokens, response)
        return [replies[number] for number in range(len(prompts))]


def _token_seed(prompt: Prompt) -> int:
    return int(np.random.SeedSequence([prompt.seed, prompt.turn]).generate_state(1)[0])


def check_evaluation(config: TrainConfig, curriculum: Curriculum) -> None:
    """Raise `UsageError` if a game has too few questions for validation or its data cannot be opened."""
    games, fraction = last_games(curriculum), config.states.validation_fraction
    check_validation_size(games, fraction, config.evaluation.states, "--evaluation.states")
    check_validation_size(games, fraction, config.evaluation.episodes, "--evaluation.episodes")


def last_games(curriculum: Curriculum) -> list[Game[Any, Any]]:
    """List the distinct last-stage games of all curriculum entries."""
    return list(dict.fromkeys(entry.stages[-1].game for entry in curriculum.entries))


def evaluate_model(trainer: Trainer, folder: Path, console: Console) -> dict[str, Any]:
    """Evaluate the model on validation states and whole episodes, using each game's last curriculum stage.

    Returns:
        Data for `result.json`: `states` and, for greedy responses, `greedy` have the fields of `ValidationResult`;
        `episodes` has the mean score, its 95% interval and the number of episodes, keyed by game. A part is missing if
        its option is 0; `greedy` is also missing if all its responses end as errors.
    """
    config, curriculum, scores = trainer.config, trainer.curriculum, dict[str, Any]()
    if config.evaluation.states:
        last = Curriculum.of([entry.stages[-1].game for entry in curriculum.entries])
        for name, temperature in (("states", None), ("greedy", 0.0)):
            states = validation_episodes(config, last, last.begin(), config.evaluation.states)
            try:
                result = validate(trainer.actor, config, states, "blank" if config.blank else "true", temperature)
            except TrainingError:
                if name == "states":
                    raise
                continue  # the game raises an error for the same response in every state
            scores[name] = asdict(result)
            greedy = ", greedy" if name == "greedy" else ""
            console.print(f"{folder.name}{greedy}: {result.summary()}", soft_wrap=True)
    if config.evaluation.episodes:
        scores["episodes"] = {}
        for number, games in enumerate(split_by_id(last_games(curriculum)), 1):
            run_folder = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
            summary = evaluate_episodes(trainer, [*games.values()], run_folder, console)
            for name, game in games.items():
                mean = summary.games[game.id]
                scores["episodes"][name] = {
                    "score": mean.score_mean,
                    "score_ci": mean.score_ci,
                    "episodes": mean.episodes,
                }
    return scores


def label_arms(validation: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Return the results of the start, the control if any, and the trained model, keyed by their titles."""
    titles = {"before": "start", "control": "more SFT", "after": algorithm.upper()}
    return {title: validation[name] for name, title in titles.items() if name in validation}


def comparison_table(validation: Mapping[str, Any], algorithm: str) -> list[str]:
    """Tabulate the results on validation states: the start, the control if any, and the trained model.

    The last line compares the trained model with the control on the same states.
    """
    results = label_arms(validation, algorithm)
    rows = [["", "right responses", "greedy", "reward", "perception", "format", "true statements"]]
    for name, result in results.items():
        sampled = ValidationResult(**result["states"])
        greedy = f"{result['greedy']['success']:.1%}" if "greedy" in result else ""
        interval = "" if sampled.success_ci is None else " ({:.1%} to {:.1%})".format(*sampled.success_ci)
        perception, reasoning = (
            "" if share is None else f"{share:.1%}" for share in (sampled.perception, sampled.reasoning)
        )
        shares = (greedy, f"{sampled.reward:.3f}", perception, f"{sampled.format:.1%}", reasoning)
        rows.append([name, f"{sampled.success:.1%}{interval}", *shares])
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    if "control" in validation:
        gains, controls = (validation[name]["states"]["successes"] for name in ("after", "control"))
        if len(gains) == len(controls):
            differences = [float(gain) - float(control) for gain, control in zip(gains, controls)]
            bounds = confidence_interval(differences, unit_interval=False)
            shown = "" if bounds is None else " ({:+.1%} to {:+.1%})".format(*bounds)
            lines.append(f"{algorithm.upper()} minus more SFT: {np.mean(differences):+.1%}{shown}, paired by state")
    return lines


def baseline_scores(config: TrainConfig, curriculum: Curriculum, policy: str = "random") -> dict[str, Any]:
    """Score a policy on the same episodes as `evaluate_model`, and return scores in the form of its `episodes`."""
    count, turns = config.evaluation.episodes, config.evaluation.max_turns
    scores = {}
    for games in split_by_id(last_games(curriculum)):
        for name, game in games.items():
            records = evaluate(game, policy, count, max_turns=turns, seed=FIRST_VALIDATION_SEED, workers=0)
            scores[name] = score_summary(records)
    return scores


def describe_scores(scores: Mapping[str, Any]) -> str:
    """Format mean scores and 95% intervals of games as one line."""
    parts = []
    for game, result in scores.items():
        score = "no episode with a score" if result["score"] is None else f"{result['score']:.4g}"
        interval = "" if result["score_ci"] is None else " ({:.4g} to {:.4g})".format(*result["score_ci"])
        parts.append(f"{game} {score}{interval}")
    return ", ".join(parts)


def split_by_id(games: Sequence[Game[Any, Any]]) -> list[dict[str, Game[Any, Any]]]:
    """Distribute games over evaluation runs, because the games of a run must have different ids.

    Returns:
        Each run's games, keyed by their names in `result.json`: the id, numbered if an earlier game has the same id.
    """
    runs: list[dict[str, Game[Any, Any]]] = []
    for game in games:
        number = sum(game.id == other.id for run in runs for other in run.values())
        if number == len(runs):
            runs.append({})
        runs[number][f"{game.id} ({number + 1})" if number else game.id] = game
    return runs


def evaluate_episodes(trainer: Trainer, games: Sequence[Game[Any, Any]], folder: Path, console: Console) -> RunSummary:
    """Play whole episodes and write a run folder with records, curves and a report; raise `VlmgymError` on failure."""
    config = trainer.config
    eval_config = EvalConfig(
        episodes=config.evaluation.episodes,
        max_turns=config.evaluation.max_turns,
        seed=FIRST_VALIDATION_SEED,
        workers=0,
        **asdict(config.play.prompts),
        reward=config.reward,
        videos=0,
    )
    options = TrainedPolicyOptions(
        step=trainer.step,
        temperature=config.evaluation.temperature,
        max_tokens=config.rollout.max_tokens,
        batch_size=config.rollout.batch_size,
        blank=config.blank,
    )
    policy = TrainedPolicy(trainer, options)
    with evaluate_run(RunFolder(folder), games, policy, eval_config, console, standalone=False) as done:
        write_curves(done.run)
        write_report(done.run, done.summary, done.workers)
    return done.summary
