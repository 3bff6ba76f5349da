"""Supervised fine-tuning (cold start) on expert responses: perception, format, and some right answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.interrupts import check_interrupts
from vlmgym.policies.base import Reply
from vlmgym.rollout.states import sample_state
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.training.config import SftConfig, TrainConfig
from vlmgym.training.engine.actor import Actor
from vlmgym.training.engine.encoding import Encoder, TrainSample
from vlmgym.training.engine.processes import ALONE, DivergedError, Processes, TrainingError
from vlmgym.training.loss import micro_batches
from vlmgym.training.states import SFT_STREAM, START_ERRORS, expert_action, expert_response, start_rollouts

CHECKED_STATES = 4
"""Number of states per game that are checked before a run; one of them must do."""


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
        if not (config.sft.steps and config.sft.accuracy):
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


@dataclass(frozen=True)
class Demonstrations:
    """Demonstrations for supervised fine-tuning. Each is a pure function of the config and its index."""

    config: TrainConfig
    curriculum: Curriculum
    progress: Progress
    encoder: Encoder
    processes: Processes = ALONE

    def batch(self, step: int) -> list[TrainSample]:
        """Create this process's share of the batch of a step, without demonstrations that their game cannot make."""
        size, samples, errors = self.config.sft.batch_size, list[TrainSample](), list[str]()
        for index in self.processes.share(range(step * size, (step + 1) * size)):
            try:
                samples.append(self.sample(index))
            except START_ERRORS as error:
                errors.append(str(error))
        if errors and not samples:
            raise TrainingError(f"no demonstration of step {step + 1} could be made, the first: {errors[0]}")
        return samples

    def sample(self, index: int) -> TrainSample:
        """Create a demonstration after zero or more random turns, which give some prompts a history and feedback."""
        config, sft = self.config, self.config.sft
        seed = config.seed + SFT_STREAM
        picks = self.curriculum.picks(self.progress, seed, [index])
        past = config.play.past_turns(picks[index].game.history)
        before = max(sft.random_turns, min(config.play.max_turns - 1, past + 1))
        play = replace(config.play, max_turns=max(config.play.max_turns, before + 1))
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
            rejected = None if turn.outcome is Outcome.PLAYED else game.answer.from_data(turn.action)
            state, observation = episode.episode.state, episode.observation
        text = respond(sft.accuracy)
        return TrainSample(self.encoder.encode(observation.messages, observation.images), self.encoder.tokens(text))


def sft_loss(
    actor: Actor, samples: Sequence[TrainSample], micro_batch_size: int, processes: Processes = ALONE
) -> float:
    """Compute the mean negative log-likelihood per token of a batch, backpropagate it and return it.

    `samples` is this process's share of the batch; the result and the gradients are for the whole batch. Raises
    `DivergedError` if the loss is not finite.
    """
    tokens = sum(processes.gather([len(sample.response) for sample in samples]))
    total = 0.0
    for indices in micro_batches(samples, micro_batch_size, share=actor.shares_prompts):
        loss = -actor.compute_logprobs([samples[index] for index in indices]).logprobs.sum() / tokens
        loss.backward()
        total += loss.item()
    total = sum(processes.gather([total]))
    if not math.isfinite(total):
        raise DivergedError(f"the loss of supervised fine-tuning is {total}: lower --sft.lr")
    processes.sum_gradients([parameter for parameter in actor.model.parameters() if parameter.requires_grad])
    return total


def learning_rate(config: SftConfig, step: int) -> float:
    """Return the learning rate of a step; `step` counts from 0."""
    warmup = min(1.0, (step + 1) / 20)
    return config.lr * warmup * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / config.steps)))


def fine_tune(
    actor: Actor,
    config: SftConfig,
    micro_batch_size: int,
    batches: Iterable[Sequence[TrainSample]],
    check: Callable[[int], float],
    report: Callable[[int, float], None],
    processes: Processes = ALONE,
) -> int:
    """Fine-tune the model on one batch per step and return the number of steps taken.

    Args:
        actor: The model.
        config: Options of supervised fine-tuning.
        micro_batch_size: Maximum number of samples per forward pass.
        batches: This process's share of the batch of each step.
        check: Called regularly, and after the last step, with the number of steps taken; returns the lower of
            perception accuracy and format compliance. Training stops early when this reaches `config.target`.
        report: Called after each step with its index from 0 and its loss.
        processes: Processes that share each batch.

    Raises:
        DivergedError: The loss is not finite.
    """
    parameters = [parameter for parameter in actor.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, config.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    for step, samples in zip(range(config.steps), batches):
        check_interrupts()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        loss = sft_loss(actor, samples, micro_batch_size, processes)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        report(step, loss)
        last = step + 1 == config.steps
        if ((step + 1) % config.check_interval == 0 or last) and (check(step + 1) >= config.target or last):
            return step + 1
    return config.steps
