"""The state of a training run and what changes it: the cold start, and a step of GRPO or PPO."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.core.advantages import Floats
from training.core.rollouts import start_rollouts
from training.local.actor import Actor, Sample
from training.local.ahead import drawn_ahead
from training.local.checkpoint import load_checkpoint, save_checkpoint
from training.local.cold_start import cold_start
from training.local.config import TrainConfig
from training.local.demonstrations import Demonstrations
from training.local.errors import ColdStartError, DivergedError
from training.local.grpo import grpo_lessons
from training.local.held_out import HeldOut, look_at_cold_start
from training.local.micro_batches import micro_batches
from training.local.ppo import ppo_lessons
from training.local.progress import ColdStartProgress
from training.local.rollout import Answer, roll_out
from training.local.run import TrainingRun
from training.local.update import Lesson, Weights, learn
from vlmgym.records.episode import PolicyRecord, TurnRecord
from vlmgym.rollout.episode import EpisodeRollout

FINAL_EPISODES = 100
"""Episodes at the end whose mean reward is `final_reward`."""
GATE_POSITIONS = 64
"""Positions that are answered to see what the cold start has taught."""
_RL, _MINIBATCHES = 2, 3
"""Streams of chance that is no position's."""


class Trainer:
    """One training run."""

    def __init__(self, config: TrainConfig, run: TrainingRun) -> None:
        """Load the model that training begins with.

        Raises:
            UsageError: It does not load, or a game is none.
        """
        torch.set_num_threads(config.model.threads)
        self.config, self.run = config, run
        self.curriculum = config.make_curriculum()
        self.progress = self.curriculum.begin()
        checkpoint = run.base_model(config, self.curriculum)
        ppo = config.algorithm == "ppo"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)  # of adapters
            self.actor = Actor(checkpoint, config.model, critic=ppo)
        body = [parameter for parameter in self.actor.model.parameters() if parameter.requires_grad]
        peak = config.ppo.lr if ppo and config.ppo.lr is not None else config.update.lr
        groups: list[dict[str, Any]] = [{"params": body, "peak": peak}]
        if self.actor.critic is not None:
            groups.append({"params": list(self.actor.critic.parameters()), "peak": config.ppo.value_lr})
        self.optimizer = torch.optim.AdamW(
            groups, lr=config.update.lr, betas=config.update.betas, weight_decay=config.update.weight_decay
        )
        self.reference: Actor | None = None
        self.kl = config.update.kl
        self.step = 0
        self.rewards: list[float] = []
        self._latest: Sample | None = None
        """An answer of the step before."""

    # Cold start -----------------------------------------------------------------------------------------------------

    def learn_to_respond(self, progress: ColdStartProgress) -> str:
        """The cold start; what it came to, in words.

        Raises:
            ColdStartError: Too little was learned to go on.
            DivergedError: The loss is not finite.
        """
        config = self.config.cold_start
        found: HeldOut

        def seen() -> float:
            nonlocal found
            found = look_at_cold_start(self.actor, self.config, self.curriculum, self.progress, GATE_POSITIONS)
            progress.look(found)
            return found.learned

        demonstrations = Demonstrations(self.config, self.curriculum, self.progress, self.actor.encoder)
        with drawn_ahead(demonstrations.batch, config.steps) as batches:
            taken = cold_start(self.actor, config, self.config.update.micro_batch, batches, seen, progress.batch)
        if found.learned < config.gate:
            raise ColdStartError(
                "the cold start taught too little, and --cold-start.gate asks for "
                f"{config.gate:.0%}: {found.words('positions')}; "
                "begin anew with more --cold-start.steps or another --cold-start.lr"
            )
        short = (
            ""
            if config.until > 1 or found.learned >= config.until
            else f" (not the {config.until:.0%} of --cold-start.until)"
        )
        return f"cold start: {taken} batches{short}, {found.words('positions')}"

    # Reinforcement learning -----------------------------------------------------------------------------------------

    def take_step(self) -> dict[str, float]:
        """Play, judge, learn; the step's numbers."""
        config, clock = self.config, time.perf_counter
        began = clock()
        rows = range(self.step * config.rows, (self.step + 1) * config.rows)
        where = (self.curriculum, self.progress, config.seed, rows, config.copies)
        episodes = list(start_rollouts(*where, config.play, config.states, config.reward, transform=config.look))
        placed = clock()
        answers, scoring = roll_out(self.actor, episodes, config.rollout, (config.seed, _RL))
        played = clock()
        lessons, facts = self._judge(answers, episodes)
        judged = clock()
        facts |= self._learn(lessons)
        learned = clock()
        for row in rows:
            group = [episode for episode in episodes if episode.prompt_id == row]
            success = float(np.mean([self.curriculum.success(episode.pick, episode.turns) for episode in group]))
            self.progress = self.curriculum.after(self.progress, group[0].pick, success)
        if config.rollouts_every and self.step % config.rollouts_every == 0:
            self.run.record(self.step, episodes, self.player(), config.copies)
        earned = [sum(turn.reward.total for turn in episode.turns) for episode in episodes]
        self.rewards = (self.rewards + earned)[-FINAL_EPISODES:]
        self.step += 1
        self._latest = answers[0].sample
        return {
            "step": self.step,
            **means_of([answer.turn for answer in answers]),
            **({"episode_reward": float(np.mean(earned))} if config.play.max_turns > 1 else {}),
            "tokens": float(np.mean([len(answer.sample.response) for answer in answers])),
            **facts,
            "seconds_states": placed - began,
            "seconds_generation": played - placed - scoring,
            "seconds_scoring": scoring,
            "seconds_judging": judged - played,
            "seconds_update": learned - judged,
            "seconds": clock() - began,
        }

    def _judge(
        self, answers: Sequence[Answer], episodes: Sequence[EpisodeRollout]
    ) -> tuple[list[Lesson], dict[str, float]]:
        """What is learned from answers, and numbers of it."""
        samples = [answer.sample for answer in answers]
        if self.config.algorithm == "grpo":
            grpo = self.config.grpo
            before = self._measure(self.actor, samples)[0] if grpo.updates > 1 else None
            lessons, facts = grpo_lessons(answers, before, grpo)
        else:
            measured = self._measure(self.actor, samples)
            lessons, facts = ppo_lessons(answers, *measured, self._expected_beyond(episodes), self.config.ppo)
        if self.reference is not None:
            for lesson, logprobs in zip(lessons, self._measure(self.reference, samples)[0]):
                lesson.reference = logprobs
        return lessons, facts

    def _expected_beyond(self, episodes: Sequence[EpisodeRollout]) -> dict[tuple[int, int], float]:
        """What the critic expects of the positions at which episodes were cut off, by row and copy.

        A single response is no episode that is cut off: it is all that is asked.
        """
        cut = [episode for episode in episodes if episode.truncated] if self.config.play.max_turns > 1 else []
        encoder = self.actor.encoder
        prompts = [
            encoder.encode(left.prompt, left.images) for left in (episode.bootstrap_observation() for episode in cut)
        ]
        # A value stands before a token, whichever it is.
        _, values = self._measure(self.actor, [Sample(prompt, [encoder.end]) for prompt in prompts])
        return {(episode.prompt_id, episode.sample_idx): float(value[0]) for episode, value in zip(cut, values)}

    def _measure(self, actor: Actor, samples: Sequence[Sample]) -> tuple[list[Floats], list[Floats]]:
        """Log-probability and value of each token of each response."""
        logprobs: dict[int, Floats] = {}
        values: dict[int, Floats] = {}
        for places in micro_batches(samples, self.config.update.micro_batch):
            with torch.no_grad():
                measured = actor.measure([samples[place] for place in places], self.config.rollout.temperature)
            for row, place in enumerate(places):
                length = len(samples[place].response)
                logprobs[place] = measured.logprobs[row, :length].double().cpu().numpy()
                if measured.values is not None:
                    values[place] = measured.values[row, :length].double().cpu().numpy()
        return [logprobs[place] for place in sorted(logprobs)], [values[place] for place in sorted(values)]

    def _learn(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Change the model: epochs of minibatches, by GRPO one of one unless more are asked for."""
        config, update = self.config, self.config.update
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * min(1.0, (self.step + 1) / max(1, update.warmup))
        epochs, minibatches = config.grpo.epochs, config.grpo.minibatches
        weights = Weights(entropy=update.entropy, kl=self.kl)
        if config.algorithm == "ppo":
            ppo = config.ppo
            epochs, minibatches = ppo.epochs, ppo.minibatches
            update = replace(update, clip_low=ppo.clip, clip_high=ppo.clip)
            weights = Weights(value=ppo.value, value_clip=ppo.value_clip, entropy=ppo.entropy, kl=self.kl)
        facts = learn(
            self.actor,
            self.optimizer,
            lessons,
            update,
            weights,
            temperature=config.rollout.temperature,
            max_tokens=config.rollout.max_tokens,
            epochs=epochs,
            minibatches=minibatches,
            rng=np.random.default_rng([config.seed, _MINIBATCHES, self.step]),
        )
        if update.kl_target is not None and "kl" in facts:
            # Ziegler et al. 2019, section 2.2: proportional to the error, which counts as 20% at most.
            error = np.clip(facts["kl"] / update.kl_target - 1, -0.2, 0.2)
            self.kl *= float(1 + 0.1 * error)
            facts["kl_weight"] = self.kl
        return facts

    # Keeping --------------------------------------------------------------------------------------------------------

    def player(self) -> PolicyRecord:
        """Who plays, for records."""
        rollout = self.config.rollout
        options = {"algorithm": self.config.algorithm, "step": self.step, "temperature": rollout.temperature}
        return PolicyRecord(name="training", options=options)

    def save(self, folder: Path) -> None:
        """Write a checkpoint.

        Raises:
            DivergedError: Of the model as it is now the loss would be no number: a step that began well has ruined it.
            OutputError: It cannot be written.
        """
        found = () if self._latest is None else self._measure(self.actor, [self._latest])
        if not all(np.isfinite(numbers).all() for each in found for numbers in each):
            raise DivergedError(
                f"after step {self.step} the model gives no numbers: lower --update.lr (of PPO --ppo.lr)"
            )
        extra = {"rewards": self.rewards, "kl": self.kl}
        merged = self.config.merge
        save_checkpoint(folder, self.step, self.actor, self.optimizer, self.progress, extra, merged=merged)

    def load(self, checkpoint: Path) -> None:
        """Go on from a checkpoint."""
        self.step, self.progress, extra = load_checkpoint(checkpoint, self.actor, self.optimizer)
        self.curriculum.check(self.progress)
        self.rewards, self.kl = extra["rewards"], extra["kl"]

    def keep_reference(self) -> None:
        """Remember the model as it is before reinforcement learning, if its divergence counts."""
        if self.config.update.kl or self.config.update.kl_target:
            frozen = {id(weight): weight for weight in self.actor.parameters() if not weight.requires_grad}
            self.reference = copy.deepcopy(self.actor, frozen).requires_grad_(False)  # what is frozen is shared


def means_of(turns: Sequence[TurnRecord]) -> dict[str, float]:
    """Means over answers: reward, share in form, share that was played, and where there is a truth, what is seen."""
    seen = [turn.reward.perception for turn in turns if turn.reward.perception is not None]
    return {
        "reward": float(np.mean([turn.reward.total for turn in turns])),
        "format": float(np.mean([turn.reward.format for turn in turns])),
        **({"perception": float(np.mean(seen))} if seen else {}),
        "played": float(np.mean([turn.outcome == "played" for turn in turns])),
    }
