"""The local trainer: supervised fine-tuning, and training steps of GRPO or PPO."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from vlmgym.curriculum import Curriculum
from vlmgym.errors import EpisodeError
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import replace_file
from vlmgym.runs.record import PolicyRecord, TurnRecord
from vlmgym.training.advantages import (
    Floats,
    explained_variance,
    gae_over_tokens,
    gae_over_turns,
    grpo_advantages,
    informative_fraction,
    whiten,
)
from vlmgym.training.config import PpoConfig, TrainConfig
from vlmgym.training.curves import SftProgress
from vlmgym.training.engine.actor import Actor, roll_out
from vlmgym.training.engine.checkpoint import load_checkpoint, save_checkpoint
from vlmgym.training.engine.encoding import EncodedPrompt, TrainSample
from vlmgym.training.engine.processes import ALONE, DivergedError, Processes, TrainingError
from vlmgym.training.loss import infer, update
from vlmgym.training.records import FINAL_EPISODES, make_trained_record
from vlmgym.training.run import TrainingRun
from vlmgym.training.sft import Demonstrations, SftError, fine_tune
from vlmgym.training.states import EpisodeRollout, advance, start_rollouts
from vlmgym.training.validation import ValidationResult, check_gate

GATE_STATES = 64
"""Number of states, with one response each, per check of supervised fine-tuning."""
_ROLLOUT_STREAM, _MINIBATCH_STREAM = 2, 3
"""Separate random streams for sampling tokens and for drawing minibatches."""


class Trainer:
    """State of a training run in this process, and the operations that change it."""

    def __init__(
        self, config: TrainConfig, run: TrainingRun, curriculum: Curriculum | None = None, processes: Processes = ALONE
    ) -> None:
        """Load the base model; raise `UsageError` if the model or a game does not exist."""
        torch.set_num_threads(config.model.threads)
        self.config, self.run, self.processes = config, run, processes
        self.curriculum = curriculum or config.make_curriculum()
        self.progress = self.curriculum.begin()
        checkpoint = run.base_model(config, self.curriculum)
        ppo = config.algorithm == "ppo"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)  # for the initial adapters
            self.actor = Actor(checkpoint, config.model, critic=ppo)
        body = [parameter for parameter in self.actor.model.parameters() if parameter.requires_grad]
        peak_lr = config.ppo.lr if ppo and config.ppo.lr is not None else config.update.lr
        groups: list[dict[str, Any]] = [{"params": body, "peak_lr": peak_lr}]
        if self.actor.critic is not None:
            groups.append({"params": list(self.actor.critic.parameters()), "peak_lr": config.ppo.value_lr})
        self.optimizer = torch.optim.AdamW(
            groups, lr=config.update.lr, betas=config.update.betas, weight_decay=config.update.weight_decay, fused=True
        )
        self.reference: Actor | None = None
        self.kl_coef = config.update.kl_coef
        self.step = 0
        self.rewards: list[float] = []
        self.errors: list[str] = []
        """Errors of the last step's episodes that ended without a score, which the step does not learn from."""
        self._last_sample: TrainSample | None = None

    def fine_tune(self, progress: SftProgress | None = None) -> str:
        """Run supervised fine-tuning and return a one-line summary; raise `SftError` or `DivergedError` if it fails."""
        with self.processes.calling("fine_tune"):
            return self._fine_tune(progress)

    def _fine_tune(self, progress: SftProgress | None) -> str:
        config, processes = self.config.sft, self.processes
        progress = progress or SftProgress(Console(quiet=True), config.steps)
        result: ValidationResult
        checks: list[dict[str, Any]] = []

        def check(step: int) -> float:
            nonlocal result
            args = (self.actor, self.config, self.curriculum, self.progress, GATE_STATES)
            (result,) = processes.gather([check_gate(*args)] if processes.rank == 0 else [])
            progress.check(result)
            checks.append({"step": step, **asdict(result)})
            if processes.rank == 0:
                replace_file(self.run.sft_curve, "".join(json.dumps(row) + "\n" for row in checks).encode())
            return result.worst_skill

        demonstrations = Demonstrations(self.config, self.curriculum, self.progress, self.actor.encoder, processes)
        batches, size = map(demonstrations.batch, range(config.steps)), self.config.update.micro_batch_size
        steps = fine_tune(self.actor, config, size, batches, check, progress.batch, processes)
        if result.worst_skill < config.gate:
            raise SftError(
                f"supervised fine-tuning missed its sft.gate of {config.gate:.0%}: {result.summary('states')}; "
                "start again with more --sft.steps or another --sft.lr"
            )
        missed = result.worst_skill < config.target <= 1
        below = f" (below the sft.target of {config.target:.0%})" if missed else ""
        return f"supervised fine-tuning: {steps} steps{below}, {result.summary('states')}"

    def take_step(self) -> dict[str, float]:
        """Roll out episodes, compute advantages and update the model; return the metrics of the step."""
        with self.processes.calling("take_step"):
            return self._take_step()

    def _take_step(self) -> dict[str, float]:
        config, clock = self.config, time.perf_counter
        start = clock()
        prompt_ids = range(self.step * config.prompts, (self.step + 1) * config.prompts)
        picks = self.curriculum.picks(self.progress, config.seed, prompt_ids)
        share = {prompt_id: picks[prompt_id] for prompt_id in self.processes.share(prompt_ids)}
        args = (share, config.seed, config.group_size, config.play, config.states, config.reward)
        errors: list[str] = []
        episodes = list(start_rollouts(*args, transform=config.transform, errors=errors))
        started = clock()
        samples, seconds_scoring = roll_out(self.actor, episodes, config.rollout, (config.seed, _ROLLOUT_STREAM))
        rolled_out = clock()
        bootstrap_values = self.fill_in_logprobs(episodes, samples)
        gathered = self.processes.gather([*zip(episodes, samples, bootstrap_values)])
        failed = [episode for episode, *_ in gathered if episode.failed]
        self.errors = [*self.processes.gather(errors), *(str(episode.observation.end) for episode in failed)]
        if not (gathered := [row for row in gathered if not row[0].failed]):
            raise TrainingError(f"all episodes of step {self.step + 1} ended as errors, the first: {self.errors[0]}")
        episodes, samples, bootstrap_values = ([*column] for column in zip(*gathered))
        metrics = self.compute_advantages(episodes, samples, bootstrap_values)
        estimated = clock()
        flat = list(chain.from_iterable(samples))
        metrics |= self._update(flat)
        updated = clock()
        results = (
            (episode.prompt_id, episode.pick, self.curriculum.success(episode.pick, episode.turns))
            for episode in episodes
        )
        self.progress = advance(self.curriculum, self.progress, results)
        first = self.processes.rank == 0
        if first and config.record_interval and self.step % config.record_interval == 0:
            self.run.record(self.step, [*episodes, *failed], self.policy_record(), config.group_size)
        totals = [sum(turn.reward.total for turn in episode.turns) for episode in episodes]
        self.rewards = (self.rewards + totals)[-FINAL_EPISODES:]
        self.step += 1
        self._last_sample = flat[0]
        return {
            "step": self.step,
            "errors": len(self.errors),
            **turn_metrics([turn for episode in episodes for turn in episode.turns]),
            **({"episode_reward": float(np.mean(totals))} if config.play.max_turns > 1 else {}),
            "response_tokens": float(np.mean([len(sample.response) for sample in flat])),
            **metrics,
            "seconds_states": started - start,
            "seconds_generation": rolled_out - started - seconds_scoring,
            "seconds_scoring": seconds_scoring,
            "seconds_advantages": estimated - rolled_out,
            "seconds_update": updated - estimated,
            "seconds": clock() - start,
        }

    def generate(
        self, prompts: Sequence[EncodedPrompt], seeds: Sequence[int], max_tokens: int, temperature: float
    ) -> list[list[int]]:
        """Generate a response to each prompt, divided among all processes; see `Actor.generate`."""
        args = (prompts, seeds, max_tokens, temperature)
        with self.processes.calling("_generate", *args):
            return self._generate(*args)

    def _generate(
        self, prompts: Sequence[EncodedPrompt], seeds: Sequence[int], max_tokens: int, temperature: float
    ) -> list[list[int]]:
        share, seeds = self.processes.share(prompts), self.processes.share(seeds)
        args = (share, range(len(share)), seeds, max_tokens, temperature)
        return self.processes.gather(self.actor.generate(*args) if share else [])

    def fill_in_logprobs(
        self, episodes: Sequence[EpisodeRollout], samples: Sequence[Sequence[TrainSample]]
    ) -> list[float]:
        """Fill in log-probabilities and values of the samples of each episode; return a bootstrap value per episode."""
        flat, ppo = list(chain.from_iterable(samples)), self.config.algorithm == "ppo"
        if ppo or self.config.method.epochs * self.config.method.minibatches > 1:
            logprobs, values = self._infer(self.actor, flat)
            for number, sample in enumerate(flat):
                sample.old_logprobs, sample.old_values = logprobs[number], values[number] if ppo else None
        if self.reference is not None:
            for sample, ref_logprobs in zip(flat, self._infer(self.reference, flat)[0]):
                sample.ref_logprobs = ref_logprobs
        return self.bootstrap_values(episodes) if ppo else [0.0] * len(episodes)

    def compute_advantages(
        self,
        episodes: Sequence[EpisodeRollout],
        samples: Sequence[Sequence[TrainSample]],
        bootstrap_values: Sequence[float],
    ) -> dict[str, float]:
        """Fill in advantages and returns of the samples, which are grouped by episode; return metrics."""
        rewards = [[turn.reward.total for turn in episode.turns] for episode in episodes]
        if self.config.algorithm == "ppo":
            return compute_ppo_targets(samples, rewards, bootstrap_values, self.config.ppo)
        config, groups = self.config.grpo, [episode.prompt_id for episode in episodes]
        advantages = grpo_advantages(rewards, groups, config.gamma, config.scale_rewards)
        for sample, advantage in zip(chain.from_iterable(samples), chain.from_iterable(advantages)):
            sample.advantages = np.full(len(sample.response), advantage)
        return {"informative_fraction": informative_fraction(rewards, groups)}

    def bootstrap_values(self, episodes: Sequence[EpisodeRollout]) -> list[float]:
        """Return the value of each truncated episode's final state; 0 for others, and in single-turn training."""
        bootstrap = [0.0] * len(episodes)
        if self.config.play.max_turns > 1:
            encoder, samples = self.actor.encoder, dict[int, TrainSample]()
            for number, episode in enumerate(episodes):
                if episode.truncated:
                    try:
                        last = episode.observation_after_limit()
                        # The critic values a token before it sees the token, so any token will do.
                        samples[number] = TrainSample(encoder.encode(last.messages, last.images), [encoder.end])
                    except EpisodeError as error:
                        episode.fail(error)
            for number, values in zip(samples, self._infer(self.actor, [*samples.values()])[1]):
                bootstrap[number] = float(values[0])
        return bootstrap

    def _infer(self, actor: Actor, samples: Sequence[TrainSample]) -> Any:
        return infer(actor, samples, self.config.rollout.temperature, self.config.update.micro_batch_size)

    def _update(self, samples: Sequence[TrainSample]) -> dict[str, float]:
        config, ppo = self.config, self.config.ppo
        options, value = replace(config.update, kl_coef=self.kl_coef), {}
        if config.algorithm == "ppo":
            options = replace(options, clip_low=ppo.clip, clip_high=ppo.clip, entropy_coef=ppo.entropy_coef)
            value = {"value_coef": ppo.value_coef, "value_clip": ppo.value_clip}
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * min(1.0, (self.step + 1) / max(1, options.warmup_steps))
        metrics = update(
            self.actor,
            self.optimizer,
            samples,
            options,
            **value,
            temperature=config.rollout.temperature,
            max_tokens=config.rollout.max_tokens,
            epochs=config.method.epochs,
            minibatches=config.method.minibatches,
            rng=np.random.default_rng([config.seed, _MINIBATCH_STREAM, self.step]),
            processes=self.processes,
        )
        if options.kl_target is not None and "kl" in metrics:
            # Ziegler et al. 2019, section 2.2: proportional control with the error clipped to 20%.
            error = np.clip(metrics["kl"] / options.kl_target - 1, -0.2, 0.2)
            self.kl_coef *= float(1 + 0.1 * error)
            metrics["kl_coef"] = self.kl_coef
        return metrics

    def policy_record(self) -> PolicyRecord:
        """Describe the model for records."""
        temperature = self.config.rollout.temperature
        options = {"algorithm": self.config.algorithm, "step": self.step, "temperature": temperature}
        return PolicyRecord(name="training", options=options)

    def trained_record(self) -> TrainedRecord:
        """Describe the games and settings that the model was trained with."""
        config = self.config
        return make_trained_record(
            self.curriculum,
            self.progress,
            config.play,
            config.states,
            config.reward,
            trainer=f"local {config.algorithm}",
            step=self.step,
            temperature=config.rollout.temperature,
            top_p=1.0,
            max_tokens=config.rollout.max_tokens,
            chat_template=self.actor.encoder.tokenizer.chat_template,
            blank=config.blank,
        )

    def save(self, folder: Path) -> None:
        """Write a checkpoint; raise `DivergedError` if the model's outputs are not finite."""
        outputs = () if self._last_sample is None else self._infer(self.actor, [self._last_sample])
        if not all(np.isfinite(numbers).all() for output in outputs for numbers in output):
            raise DivergedError(
                f"after step {self.step} the model outputs are not finite: lower --update.lr (--ppo.lr for PPO)"
            )
        extra = {"rewards": self.rewards, "kl_coef": self.kl_coef}
        merged = self.config.save_merged
        arguments = (self.step, self.actor, self.optimizer, self.progress, extra, self.trained_record())
        save_checkpoint(folder, *arguments, merged=merged)

    def load(self, checkpoint: Path) -> None:
        """Resume from a checkpoint."""
        with self.processes.calling("load", checkpoint):
            self.step, self.progress, extra = load_checkpoint(checkpoint, self.actor, self.optimizer)
            self.curriculum.check(self.progress)
            self.rewards, self.kl_coef = extra["rewards"], extra["kl_coef"]

    def keep_reference(self) -> None:
        """Keep a frozen copy of the model as the reference model if there is a KL penalty."""
        if self.config.update.kl_coef:
            with self.processes.calling("keep_reference"):
                shared = {id(weight): weight for weight in self.actor.parameters() if not weight.requires_grad}
                self.reference = copy.deepcopy(self.actor, shared).requires_grad_(False)


def compute_ppo_targets(
    samples: Sequence[Sequence[TrainSample]],
    rewards: Sequence[Sequence[float]],
    bootstrap_values: Sequence[float],
    config: PpoConfig,
) -> dict[str, float]:
    """Fill in advantages and returns of samples that have `old_values`; return the explained variance of the critic.

    For each episode, `samples` and `rewards` have one entry per turn.
    """
    monte_carlo: list[Floats] = []
    # With lambda below 1, returns contain the critic's own values, so the critic is compared with lambda-1 returns.
    monte_carlo_config = replace(config, lam=1.0, token_lam=1.0)
    for episode, turn_rewards, bootstrap in zip(samples, rewards, bootstrap_values):
        values = [sample.old_values for sample in episode if sample.old_values is not None]
        for sample, advantages, returns in zip(episode, *episode_gae(turn_rewards, values, bootstrap, config)):
            sample.advantages, sample.returns = advantages, returns
        monte_carlo += episode_gae(turn_rewards, values, bootstrap, monte_carlo_config)[1]
    flat = list(chain.from_iterable(samples))
    if config.whiten:
        white = whiten(np.concatenate([sample.advantages for sample in flat]))
        for sample, advantages in zip(flat, np.split(white, np.cumsum([len(s.response) for s in flat])[:-1])):
            sample.advantages = advantages
    old_values: Any = np.concatenate([sample.old_values for sample in flat])
    return {"explained_variance": explained_variance(old_values, np.concatenate(monte_carlo))}


def episode_gae(
    rewards: Sequence[float], values: Sequence[Floats], bootstrap_value: float, config: PpoConfig
) -> tuple[list[Floats], list[Floats]]:
    """Estimate advantages and returns of an episode, with GAE over turns or tokens as configured."""
    if config.gae_over == "turns":
        return gae_over_turns(rewards, values, config.gamma, config.lam, bootstrap_value)
    tokens = (config.token_gamma, config.token_lam)
    return gae_over_tokens(rewards, values, config.gamma, config.lam, *tokens, bootstrap_value)


def turn_metrics(turns: Sequence[TurnRecord]) -> dict[str, float]:
    """Average the reward, format compliance and perception accuracy of turns, and compute the fraction played."""
    perception = [turn.reward.perception for turn in turns if turn.reward.perception is not None]
    return {
        "reward": float(np.mean([turn.reward.total for turn in turns])),
        "format": float(np.mean([turn.reward.format for turn in turns])),
        **({"perception": float(np.mean(perception))} if perception else {}),
        "played": float(np.mean([turn.outcome == "played" for turn in turns])),
    }
