"""Single-response validation: mean reward, perception and format over one response to each validation state.

Validation states are drawn separately from training states. Questions of a finite dataset that are used for validation
are never trained on; a generated state may by chance also occur in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.policies.base import identity
from vlmgym.rollout.states import VALIDATION_STREAM
from vlmgym.rollout.turn import Transform
from vlmgym.sandbox.core.prompt import blank
from vlmgym.sandbox.core.task import Task
from vlmgym.statistics import confidence_interval
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.config import TrainConfig
from vlmgym.training.engine.actor import Actor, roll_out
from vlmgym.training.signal import response_metrics
from vlmgym.training.states import GATE_STREAM, EpisodeRollout, start_rollouts

Images = Literal["true", "blank", "shuffled"]
"""Images shown to the model: the true ones, grey ones, or the images of another state."""


@dataclass(frozen=True)
class ValidationResult:
    """Means over one response to each validation state.

    Attributes:
        responses: Number of responses.
        successes: For each response, whether its action was played and rewarded by the game.
        success: Fraction of these.
        success_ci: Wilson's 95% confidence interval of `success`; None for a single response.
        reward: Mean total reward.
        reward_ci: 95% confidence interval of `reward`: Wilson's if rewards are 0 or 1 for failure and success, else
            Student's t; None if undefined.
        perception: Perception accuracy; None for games without a ground truth.
        format: Format compliance, the fraction of responses in the exact format.
        reasoning: Mean fraction of true statements of the reasoning; None if no response has any that can be checked.
    """

    responses: int
    successes: list[bool]
    success: float
    success_ci: tuple[float, float] | None
    reward: float
    reward_ci: tuple[float, float] | None
    perception: float | None
    format: float
    reasoning: float | None = None

    @property
    def worst_skill(self) -> float:
        """Perception accuracy or format compliance, whichever is lower."""
        return self.format if self.perception is None else min(self.format, self.perception)

    @property
    def skills(self) -> str:
        """Perception accuracy, if known, and format compliance in words."""
        perception = "" if self.perception is None else f"{self.perception:.0%} perception accuracy, "
        return f"{perception}{self.format:.0%} format compliance"

    def summary(self, states: str = "validation states") -> str:
        """Describe the result in one line."""
        interval = "" if self.reward_ci is None else f" ({self.reward_ci[0]:.3f} to {self.reward_ci[1]:.3f})"
        return f"reward {self.reward:.3f}{interval} over {self.responses} {states}, {self.skills}"


def validation_episodes(
    config: TrainConfig, curriculum: Curriculum, progress: Progress, count: int
) -> list[EpisodeRollout]:
    """Start single-turn episodes at validation states, which are not used to train or to decide when to stop."""
    return _single_turns(config, curriculum, progress, VALIDATION_STREAM, count, validation=True)


def validate(
    actor: Actor,
    config: TrainConfig,
    episodes: Sequence[EpisodeRollout],
    images: Images = "true",
    temperature: float | None = None,
) -> ValidationResult:
    """Generate one response to each validation state and play it; this modifies `episodes`."""
    shown = [episode.observation.images for episode in episodes]
    if images == "blank":
        shown = [[*map(blank, arrays)] for arrays in shown]
    elif images == "shuffled":
        shown = [*shown[1:], *shown[:1]]
    for episode, arrays in zip(episodes, shown):
        episode.observation = episode.observation._replace(images=arrays)
    return _respond(actor, config, episodes, VALIDATION_STREAM, temperature)


def check_gate(
    actor: Actor, config: TrainConfig, curriculum: Curriculum, progress: Progress, count: int
) -> ValidationResult:
    """Measure the model on states other than the validation states, to decide if supervised fine-tuning has succeeded.

    These states are also drawn separately from training states. In a finite dataset, however, they are training
    questions, because all others are held out for validation.
    """
    episodes = _single_turns(config, curriculum, progress, GATE_STREAM, count, transform=config.transform)
    return _respond(actor, config, episodes, GATE_STREAM, None)


def _single_turns(
    config: TrainConfig,
    curriculum: Curriculum,
    progress: Progress,
    stream: int,
    count: int,
    *,
    transform: Transform = identity,
    validation: bool = False,
) -> list[EpisodeRollout]:
    seed = config.seed + stream
    picks = {index: curriculum.pick(progress, seed, index) for index in range(count)}
    options = (replace(config.play, max_turns=1), config.states, config.reward)
    return list(start_rollouts(picks, seed, 1, *options, transform=transform, validation=validation, errors=[]))


def _respond(
    actor: Actor, config: TrainConfig, episodes: Sequence[EpisodeRollout], stream: int, temperature: float | None
) -> ValidationResult:
    temperature = config.evaluation.temperature if temperature is None else temperature
    roll_out(actor, episodes, replace(config.rollout, temperature=temperature), (config.seed, stream))
    episodes = [episode for episode in episodes if not episode.failed]
    if not episodes:
        raise TrainingError("all responses for validation ended as errors of the games")
    turns = [turn for episode in episodes for turn in episode.turns]
    means, rewards = response_metrics(turns), [turn.reward.total for turn in turns]
    # If all rewards are 0 or 1, their mean is a proportion only if other rewards are impossible, not just absent.
    weights = config.reward
    others = weights.format_weight, weights.perception_weight, weights.prediction_weight, weights.reasoning_weight
    is_binary = weights.shaping == "sign" or all(isinstance(episode.setup.game, Task) for episode in episodes)
    proportions = is_binary and not any(others)
    successes = [turn.is_rewarded for turn in turns]
    return ValidationResult(
        responses=len(turns),
        successes=successes,
        success=float(np.mean(successes)),
        success_ci=confidence_interval([float(success) for success in successes], unit_interval=True),
        reward=means["total"],
        reward_ci=confidence_interval(rewards, unit_interval=proportions),
        perception=means.get("perception"),
        format=means["format"],
        reasoning=means.get("reasoning"),
    )
