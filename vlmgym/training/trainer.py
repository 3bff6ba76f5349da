"""The loop of local training: roll out episodes, let the algorithm compute targets, and update the model.

The algorithms are in sft.py, grpo.py, ppo.py and dagger.py, and the model is in engine/.
"""

from __future__ import annotations

import dataclasses
import json
import time
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from vlmgym.curriculum import Curriculum
from vlmgym.errors import EpisodeError, UsageError
from vlmgym.policies.checkpoint import resolve_checkpoint
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import replace_file
from vlmgym.runs.record import PolicyRecord
from vlmgym.training.algorithm import Batch, DivergedError, TrainingError, Trajectory, group_indices, kl_estimate
from vlmgym.training.config import TrainConfig
from vlmgym.training.curves import SftProgress
from vlmgym.training.engine.actor import Actor, LogProbs, TeacherActor, roll_out
from vlmgym.training.engine.checkpoint import load_checkpoint, save_checkpoint
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.engine.engine import Engine
from vlmgym.training.engine.families import EncodedPrompt
from vlmgym.training.engine.processes import ALONE, Processes, in_all_processes
from vlmgym.training.records import FINAL_EPISODES, make_trained_record
from vlmgym.training.run import TrainingRun
from vlmgym.training.sft import Demonstrations, SftError, fine_tune
from vlmgym.training.signal import (
    COSINE_INTERVAL,
    SIGHT_INTERVAL,
    group_metrics,
    image_swaps,
    response_metrics,
    sight_metrics,
)
from vlmgym.training.states import EpisodeRollout, advance, start_rollouts
from vlmgym.training.validation import ValidationResult, check_gate

GATE_STATES = 64
"""Number of states, with one response each, per check of supervised fine-tuning."""
_ROLLOUT_STREAM, _MINIBATCH_STREAM, _PERMUTATION_STREAM = 2, 3, 4
"""Separate random streams for sampling tokens, drawing minibatches and permuting rewards."""


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
        self.algorithm = config.method
        checkpoint = run.base_model(config, self.curriculum)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)  # for the initial adapters
            self.actor = Actor(checkpoint, config.model, critic=self.algorithm.critic)
        self.engine = Engine(self.actor, config.rollout, config.update.micro_batch_size, processes)
        if (teacher := self.algorithm.teacher_model) is not None and teacher.checkpoint is not None:
            self.engine.teacher = TeacherActor(self._load_teacher(teacher.checkpoint), teacher.observation)
        self.optimizer = self.engine.make_optimizer(
            *self.algorithm.learning_rates(config.update.lr),
            betas=config.update.betas,
            weight_decay=config.update.weight_decay,
        )
        self.step = 0
        self.rewards: list[float] = []
        self.errors: list[str] = []
        """Errors of the last step's episodes that ended without a score, which the step does not learn from."""
        self._last_sample: TrainSample | None = None

    def _load_teacher(self, checkpoint: str) -> Actor:
        """Load a teacher; raise `UsageError` if it does not exist or has another vocabulary."""
        config = dataclasses.replace(self.config.model, lora=0, gradient_checkpointing=False)
        teacher = Actor(resolve_checkpoint(checkpoint, "distillation"), config)
        teacher.requires_grad_(False)
        if teacher.encoder.tokenizer.get_vocab() != self.actor.encoder.tokenizer.get_vocab():
            raise UsageError(
                f"the teacher {checkpoint} has another vocabulary than the model: choose one with the same tokenizer"
            )
        return teacher

    @in_all_processes
    def fine_tune(self, control: bool = False, *, progress: SftProgress | None = None) -> str:
        """Run supervised fine-tuning and return a one-line summary; raise `SftError` or `DivergedError` if it fails.

        With `control`, continue with `control_steps` batches of further demonstrations, without target and gate.
        """
        config, processes, first_step, curve = self.config.sft, self.processes, 0, self.run.sft_curve
        if control:
            first_step, curve = config.steps, self.run.control_curve
            config = dataclasses.replace(config, steps=config.control_steps, target=2, gate=0)
        progress = progress or SftProgress(Console(quiet=True), config.steps)
        result: ValidationResult
        checks: list[dict[str, Any]] = []
        start = time.perf_counter()

        def check(step: int) -> float:
            nonlocal result
            args = (self.actor, self.config, self.curriculum, self.progress, GATE_STATES)
            (result,) = processes.gather([check_gate(*args)] if processes.rank == 0 else [])
            progress.check(result)
            checks.append({"step": step, "seconds": time.perf_counter() - start, **dataclasses.asdict(result)})
            if processes.rank == 0:
                replace_file(curve, "".join(json.dumps(row) + "\n" for row in checks).encode())
            return result.worst_skill

        demonstrations = Demonstrations(self.config, self.curriculum, self.progress, self.actor.encoder, processes)
        batches = map(demonstrations.batch, range(first_step, first_step + config.steps))
        steps = fine_tune(self.engine, config, batches, check, progress.batch)
        if result.worst_skill < config.gate:
            raise SftError(
                f"supervised fine-tuning missed its sft.gate of {config.gate:.0%}: {result.summary('states')}; "
                "start again with more --sft.steps or another --sft.lr"
            )
        missed = result.worst_skill < config.target <= 1
        below = f" (below the sft.target of {config.target:.0%})" if missed else ""
        return f"{'more ' * control}supervised fine-tuning: {steps} steps{below}, {result.summary('states')}"

    @in_all_processes
    def take_step(self) -> dict[str, float]:
        """Roll out episodes, compute advantages and update the model; return the metrics of the step."""
        config, clock = self.config, time.perf_counter
        start = clock()
        prompt_ids = range(self.step * config.prompts, (self.step + 1) * config.prompts)
        picks = self.curriculum.picks(self.progress, config.seed, prompt_ids)
        share = {prompt_id: picks[prompt_id] for prompt_id in self.processes.share(prompt_ids)}
        args = (share, config.seed, config.group_size, config.play, config.states, config.reward)
        errors: list[str] = []
        episodes = list(start_rollouts(*args, transform=config.transform, errors=errors))
        started = clock()
        seed = (config.seed, _ROLLOUT_STREAM)
        samples, seconds_scoring = roll_out(
            self.actor, episodes, config.rollout, seed, self.engine.teacher, config.expert
        )
        rolled_out = clock()
        self.fill_in_logprobs([*chain.from_iterable(samples)])
        gathered = self.processes.gather([*zip(episodes, samples, self.bootstrap_values(episodes))])
        failed = [episode for episode, *_ in gathered if episode.failed]
        self.errors = [*self.processes.gather(errors), *(str(episode.observation.end) for episode in failed)]
        if not (gathered := [row for row in gathered if not row[0].failed]):
            raise TrainingError(f"all episodes of step {self.step + 1} ended as errors, the first: {self.errors[0]}")
        episodes = [episode for episode, *_ in gathered]
        trajectories = [
            Trajectory(episode.prompt_id, [turn.reward.total for turn in episode.turns], samples, bootstrap_value)
            for episode, samples, bootstrap_value in gathered
        ]
        metrics = self.compute_targets(trajectories)
        estimated = clock()
        flat = [*chain.from_iterable(samples for _, samples, _ in gathered)]
        metrics |= sight_metrics(self.sight_gaps(flat))
        middle = prompt_ids[len(prompt_ids) // 2]
        split = sum(len(samples) for episode, samples, _ in gathered if episode.prompt_id < middle)
        metrics |= self.update(flat, split)
        updated = clock()
        results = (
            (episode.prompt_id, episode.pick, self.curriculum.success(episode.pick, episode.turns))
            for episode in episodes
        )
        self.progress = advance(self.curriculum, self.progress, results)
        if self.processes.rank == 0 and config.record_interval and self.step % config.record_interval == 0:
            self.run.record(self.step, [*episodes, *failed], self.policy_record(), config.group_size)
        totals = [sum(turn.reward.total for turn in episode.turns) for episode in episodes]
        self.rewards = (self.rewards + totals)[-FINAL_EPISODES:]
        self.step += 1
        self._last_sample = flat[0]
        turns = [turn for episode in episodes for turn in episode.turns]
        parts = response_metrics(turns)
        return {
            "step": self.step,
            "errors": len(self.errors),
            "reward": parts.pop("total"),
            **parts,
            **group_metrics([episode.prompt_id for episode in episodes], [episode.turns for episode in episodes]),
            **({"episode_reward": float(np.mean(totals))} if config.play.max_turns > 1 else {}),
            "response_tokens": float(np.mean([turn.completion_tokens or 0 for turn in turns])),
            **metrics,
            "seconds_states": started - start,
            "seconds_generation": rolled_out - started - seconds_scoring,
            "seconds_scoring": seconds_scoring,
            "seconds_advantages": estimated - rolled_out,
            "seconds_update": updated - estimated,
            "seconds": clock() - start,
        }

    @in_all_processes
    def generate(
        self, prompts: Sequence[EncodedPrompt], seeds: Sequence[int], max_tokens: int, temperature: float
    ) -> list[list[int]]:
        """Generate a response to each prompt, divided among all processes; see `Actor.generate`."""
        share, seeds = self.processes.share(prompts), self.processes.share(seeds)
        args = (share, range(len(share)), seeds, max_tokens, temperature)
        return self.processes.gather(self.actor.generate(*args) if share else [])

    def fill_in_logprobs(self, samples: Sequence[TrainSample]) -> None:
        """Fill in what the loss compares the model with: log-probabilities and values before the step."""
        if self.algorithm.critic or self.algorithm.epochs * self.algorithm.minibatches > 1:
            logprobs, values = self.engine.infer(samples)
            for number, sample in enumerate(samples):
                sample.old_logprobs, sample.old_values = logprobs[number], values[number] if values else None
        if self.engine.reference is not None:
            for sample, ref_logprobs in zip(samples, self.engine.infer(samples, self.engine.reference)[0]):
                sample.ref_logprobs = ref_logprobs

    def sight_gaps(self, samples: Sequence[TrainSample]) -> list[float]:
        """Return how much some log-probabilities change with the images of other prompts; see signal.py.

        All processes compute the same.
        """
        if self.step % SIGHT_INTERVAL or not samples[0].prompt.images:
            return []
        prompts = [sample.prompt for sample in samples]
        pixels = [tuple(zlib.crc32(tensor.numpy()) for tensor in prompt.images.values()) for prompt in prompts]
        swaps = image_swaps([prompt.layout for prompt in prompts], pixels)
        # Responses to one prompt share it before and after, so that only the images change the rounding.
        changed = {
            id(prompts[row]): dataclasses.replace(prompts[row], images=prompts[other].images)
            for row, other in swaps.items()
        }
        swapped = [TrainSample(changed[id(prompts[row])], samples[row].response) for row in swaps]
        pairs = zip(self.engine.infer([samples[row] for row in swaps])[0], self.engine.infer(swapped)[0])
        return [float(np.abs(true_logprobs - logprobs).sum()) for true_logprobs, logprobs in pairs]

    def bootstrap_values(self, episodes: Sequence[EpisodeRollout]) -> list[float]:
        """Return the value of each truncated episode's final state; 0 for others, and for all single turns."""
        bootstrap = [0.0] * len(episodes)
        if self.algorithm.critic and self.config.play.max_turns > 1:
            encoder, samples = self.actor.encoder, dict[int, TrainSample]()
            for number, episode in enumerate(episodes):
                if episode.truncated:
                    try:
                        last = episode.observation_after_limit()
                        # The critic values a token before it sees the token, so any token will do.
                        samples[number] = TrainSample(encoder.encode(last.messages, last.images), [encoder.end])
                    except EpisodeError as error:
                        episode.fail(error)
            for number, values in zip(samples, self.engine.infer([*samples.values()])[1]):
                bootstrap[number] = float(values[0])
        return bootstrap

    def compute_targets(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Let the algorithm fill in advantages and returns; return its metrics."""
        if self.config.control == "permuted":
            permute_rewards(trajectories, np.random.default_rng([self.config.seed, _PERMUTATION_STREAM, self.step]))
        return self.algorithm.targets(trajectories)

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the algorithm's loss, with the KL penalty if there is a reference model.

        The metric approx_kl is the divergence from the model before the step.
        """
        loss, metrics = self.algorithm.loss(out, batch)
        metrics["entropy"] = (out.entropy * batch.token_weights).sum()
        if not self.algorithm.imitates:  # the estimate needs tokens that the model has sampled
            metrics["approx_kl"] = (kl_estimate(batch.old_logprobs, out.logprobs) * batch.token_weights).sum()
        if batch.ref_logprobs is not None:
            kl = kl_estimate(out.logprobs, batch.ref_logprobs)
            loss = loss + self.config.update.kl_coef * (kl * batch.weights).sum()
            metrics["kl"] = (kl * batch.token_weights).sum()
        return loss, metrics

    def perception_loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the weighted negative log-likelihood of true perceptions."""
        loss = -(out.logprobs * batch.weights).sum()
        return self.config.update.perception_coef * loss, {"perception_loss": loss}

    def update(self, samples: Sequence[TrainSample], split: int = 0) -> dict[str, float]:
        """Take the gradient steps of a training step, one per minibatch in each epoch; return their mean metrics.

        `split` is the number of the first samples, from half of the states, whose gradient is compared with the rest.
        """
        config, algorithm = self.config, self.algorithm
        rng = np.random.default_rng([config.seed, _MINIBATCH_STREAM, self.step])
        single = algorithm.epochs == algorithm.minibatches == 1
        measures = single and self.step % COSINE_INTERVAL == 0 and 0 < split < len(samples)
        metrics: list[dict[str, float]] = []
        for _ in range(algorithm.epochs):
            for indices in np.array_split(rng.permutation(len(samples)), algorithm.minibatches):
                minibatch = samples if single else [samples[index] for index in indices]
                truths = true_perceptions(minibatch) if config.update.perception_coef else []
                metrics.append(
                    self.engine.step(
                        self.optimizer,
                        minibatch,
                        self.loss,
                        config.update.rate(self.step, config.steps),
                        further=(truths, self.perception_loss),
                        loss_over=config.update.loss_over,
                        temperature=1.0 if algorithm.imitates else None,
                        entropy_grad=algorithm.entropy_coef > 0,
                        max_grad_norm=config.update.max_grad_norm,
                        split=split if measures else None,
                    )
                )
        return {name: float(np.mean([row[name] for row in metrics])) for name in metrics[0]}

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
            enable_thinking=config.model.enable_thinking,
            blank=config.blank,
        )

    def save(self, folder: Path) -> None:
        """Write a checkpoint; raise `DivergedError` if the model's outputs are not finite."""
        outputs = () if self._last_sample is None else self.engine.infer([self._last_sample])
        if not all(np.isfinite(numbers).all() for output in outputs for numbers in output):
            raise DivergedError(f"after step {self.step} the model outputs are not finite")
        save_checkpoint(
            folder,
            self.actor,
            self.optimizer,
            self.progress,
            self.rewards,
            self.trained_record(),
            merged=self.config.save_merged,
        )

    @in_all_processes
    def load(self, checkpoint: Path) -> None:
        """Resume from a checkpoint."""
        self.step, self.progress, self.rewards = load_checkpoint(checkpoint, self.actor, self.optimizer)
        self.curriculum.check(self.progress)

    @in_all_processes
    def keep_reference(self) -> None:
        """Keep frozen copies of the model: as the reference of a KL penalty, and as its own teacher."""
        if self.config.update.kl_coef:
            self.engine.reference = self.engine.frozen_copy()
        if (teacher := self.algorithm.teacher_model) is not None and teacher.checkpoint is None:
            self.engine.teacher = TeacherActor(self.engine.frozen_copy(), teacher.observation)


def true_perceptions(samples: Sequence[TrainSample]) -> list[TrainSample]:
    """Return the true perception of each distinct prompt as a response to it."""
    truths = {id(sample.prompt): (sample.prompt, sample.truth) for sample in samples}
    return [TrainSample(prompt, truth) for prompt, truth in truths.values() if truth is not None]


def permute_rewards(trajectories: Sequence[Trajectory], rng: np.random.Generator) -> None:
    """Permute the rewards of each turn among the episodes of a group, or of the step if groups have one episode."""
    groups = group_indices([trajectory.group for trajectory in trajectories])
    if len(groups) == len(trajectories):
        groups = [[*range(len(trajectories))]]
    for indices in groups:
        members = [trajectories[index].rewards for index in indices]
        for turn in range(max(map(len, members))):
            playing = [rewards for rewards in members if len(rewards) > turn]
            permuted = [playing[number][turn] for number in rng.permutation(len(playing))]
            for rewards, reward in zip(playing, permuted):
                rewards[turn] = reward
