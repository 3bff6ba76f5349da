"""Supervised fine-tuning (cold start) on expert responses: perception, format, and some right answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from tyro.conf import Fixed

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.policies.base import Reply
from vlmgym.rollout.states import sample_state
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.terminal import check_interrupts
from vlmgym.training.algorithm import Batch, Fraction, Options, TrainingError, cosine_rate
from vlmgym.training.states import SFT_STREAM, START_ERRORS, Expert, expert_action, expert_response, start_rollouts

if TYPE_CHECKING:
    import torch

    from vlmgym.training.config import TrainConfig
    from vlmgym.training.engine.actor import LogProbs
    from vlmgym.training.engine.encoding import Encoder, TrainSample
    from vlmgym.training.engine.engine import Engine
    from vlmgym.training.engine.processes import Processes

WARMUP_STEPS = 20
"""Steps of linear warm-up."""
CHECKED_STATES = 4
"""Number of states per game that are checked before a run; one of them must do."""


@dataclass(frozen=True, kw_only=True)
class Sft(Options):
    """Supervised fine-tuning before reinforcement learning (cold start)."""

    steps: NonNegativeInt = 0
    """Maximum number of batches. 0 skips supervised fine-tuning."""
    control_steps: NonNegativeInt = 0
    """Batches of a control that continues supervised fine-tuning instead of reinforcement learning, from the same model
    with further demonstrations. It is evaluated in the same way; its model is not kept."""
    batch_size: Fixed[PositiveInt] = 32
    """Responses per batch, each to a new state."""
    lr: PositiveFloat = 3e-3
    """Peak learning rate: 20 steps of linear warm-up, then cosine decay to 2%."""
    accuracy: Fraction = 0.4
    """Fraction of demonstrations with the expert's answer.
    The others have random answers, so the right answers have to be learned from rewards."""
    expert: Expert = "greedy"
    """Source of the expert's answers, also in dagger: the game's oracle or simple rule, or the highest immediate reward
    (greedy)."""
    random_turns: Fixed[NonNegativeInt] = 0
    """Maximum number of random turns before the state of a demonstration; the number is drawn uniformly.
    Random turns show the model prompts with feedback on invalid turns.
    With --max-turns above 1, the maximum is at least 1, and higher if prompts have a longer history."""
    target: Fixed[NonNegativeFloat] = 0.99
    """Stop once both perception accuracy and format compliance of generated responses reach this value.
    Above 1, take all steps."""
    check_interval: Fixed[PositiveInt] = 100
    """Steps between checks of `target`. The last step is always checked."""
    gate: Fixed[Fraction] = 0.5
    """Minimum perception accuracy and format compliance to start reinforcement learning.
    With less, rewards would give no signal to learn from."""

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0, as a fraction of the peak."""
        return min(1.0, (step + 1) / WARMUP_STEPS) * cosine_rate(step, self.steps)

    @staticmethod
    def loss(out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the mean negative log-likelihood of a batch's tokens."""
        return -(out.logprobs * batch.weights).sum(), {}


class SftError(VlmgymError):
    """Supervised fine-tuning missed its gate, the minimum accuracy to start reinforcement learning."""


def check_games(config: TrainConfig, curriculum: Curriculum) -> None:
    """Raise `UsageError` unless every game has states to train on and, if demonstrations need it, the expert."""
    for game in curriculum.games:
        errors = list[str]()
        for index in range(CHECKED_STATES):
            if (error := _state_error(config, game, index)) is None:
                break
            errors.append(error)
        else:
            raise UsageError(errors[0])


def _state_error(config: TrainConfig, game: Game[Any, Any], index: int) -> str | None:
    """Return why a state cannot be trained on or demonstrated, or None."""
    try:
        snapshot = sample_state(game, config.seed, index, config.states, config.reward)
        if not ((config.sft.steps and config.sft.accuracy) or config.expert):
            return None
        with game_errors(game.id, snapshot.seed, None, UsageError):
            state, rng = game.from_json(snapshot.state), np.random.default_rng(0)
            expert_action(game, state, config.sft.expert, config.reward, rng)
    except UsageError as error:
        hint = "" if config.sft.expert == "oracle" else ": use --sft.expert oracle"
        return f"{error}{hint}"
    except START_ERRORS as error:
        return str(error)
    return None


@dataclasses.dataclass(frozen=True)
class Demonstrations:
    """Demonstrations for supervised fine-tuning. Each is a pure function of the config and its index."""

    config: TrainConfig
    curriculum: Curriculum
    progress: Progress
    encoder: Encoder
    processes: Processes

    def batch(self, step: int) -> list[TrainSample]:
        """Create the batch of a step, a share in each process, without demonstrations that their game cannot make."""
        size, errors = self.config.sft.batch_size, list[str]()
        samples: list[TrainSample] = []
        for index in self.processes.share(range(step * size, (step + 1) * size)):
            try:
                samples.append(self.sample(index))
            except START_ERRORS as error:
                errors.append(str(error))
        if samples := self.processes.gather(samples):
            return samples
        errors = self.processes.gather(errors)
        raise TrainingError(f"no demonstration of step {step + 1} could be made, the first: {errors[0]}")

    def sample(self, index: int) -> TrainSample:
        """Create a demonstration after zero or more random turns, which give some prompts a history and feedback."""
        config, sft = self.config, self.config.sft
        seed = config.seed + SFT_STREAM
        picks = self.curriculum.picks(self.progress, seed, [index])
        past = config.play.past_turns(picks[index].game.history)
        before = max(sft.random_turns, min(config.play.max_turns - 1, past + 1))
        play = dataclasses.replace(config.play, max_turns=max(config.play.max_turns, before + 1))
        args = (picks, seed, 1, play, config.states, config.reward)
        episode = next(start_rollouts(*args, transform=config.transform))
        game, state, observation = episode.setup.game, episode.episode.state, episode.observation
        rng = np.random.default_rng([seed, index])
        rejected: Any = None

        def respond(accuracy: float) -> str:
            with episode.episode.game_errors(UsageError):
                return expert_response(game, state, sft.expert, accuracy, config.reward, rng, rejected)

        for _ in range(int(rng.integers(before + 1))):
            turn = episode.respond(Reply(respond(0.0)))
            if episode.done:
                break
            rejected = None if turn.outcome is Outcome.PLAYED else game.recorded_actions(turn.action)[0]
            state, observation = episode.episode.state, episode.observation
        return self.encoder.sample(observation.messages, observation.images, respond(sft.accuracy))


def fine_tune(
    engine: Engine,
    config: Sft,
    batches: Iterable[Sequence[TrainSample]],
    check: Callable[[int], float],
    report: Callable[[int, float], None],
) -> int:
    """Fine-tune the model on one batch per step and return the number of steps taken.

    Args:
        engine: The model.
        config: Options of supervised fine-tuning.
        batches: Batch of each step.
        check: Called regularly, and after the last step, with the number of steps taken; returns the lower of
            perception accuracy and format compliance. Training stops early when this reaches `config.target`.
        report: Called after each step with the number of steps taken and the loss.

    Raises:
        DivergedError: The loss is not finite.
    """
    optimizer = engine.make_optimizer(config.lr, 0.0, betas=(0.9, 0.98), weight_decay=0.01)
    step = 0
    for step, samples in zip(range(1, config.steps + 1), batches):
        check_interrupts()
        metrics = engine.step(optimizer, samples, config.loss, config.rate(step - 1), temperature=1.0)
        report(step, metrics["loss"])
        if (step % config.check_interval == 0 or step == config.steps) and check(step) >= config.target:
            break
    return step
