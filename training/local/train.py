"""Train a Qwen-VL on games in this process: cold start, then GRPO or PPO, measured before and after.

    python -m training.local.train --preset tiny --algorithm grpo

Everything follows from the configuration and its seed: which positions, which tokens, which minibatches. Nothing
depends on what was drawn before, so that a run that goes on from a checkpoint is the run that was never stopped.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from training.core.advantages import Floats, whitened
from training.core.seats import take_seats
from training.core.states import sample_state
from training.core.teacher import teach
from training.local.actor import Actor, Sample, TrainingError
from training.local.checkpoint import drop_old, last_checkpoint, load_checkpoint, save_checkpoint
from training.local.cold_start import cold_start
from training.local.config import TrainConfig, read_config
from training.local.curves import Curves
from training.local.evaluation import play_whole_episodes
from training.local.grpo import grpo_advantages
from training.local.held_out import Eye, HeldOut, answer_held_out, blank
from training.local.ppo import ppo_advantages
from training.local.progress import ColdStartProgress, StepProgress
from training.local.rollout import Answer, roll_out
from training.local.run import TrainingRun
from training.local.update import Lesson, Weights, learn
from vlmgym.curriculum import Curriculum
from vlmgym.evaluation.files import replace_file, writing
from vlmgym.evaluation.record import PolicyRecord
from vlmgym.options import reporting_errors
from vlmgym.terminal import terminal

FINAL_EPISODES = 100
"""Episodes at the end whose mean reward is `final_reward`."""
_COLD, _RL, _MINIBATCHES = 1, 2, 3
"""Streams of chance."""
OUT_OF_MEMORY = (
    "the memory is too small: lower --update.micro-batch, --rollout.batch, --cold-start.batch, --rollout.max-tokens or "
    "--size, or use --lora 64, --checkpointing and --dtype bfloat16"
)


class Trainer:
    """One training run."""

    def __init__(self, config: TrainConfig, run: TrainingRun) -> None:
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

    # Cold start -----------------------------------------------------------------------------------------------------

    def learn_to_respond(self, report: Any) -> int:
        """The cold start; how many batches it took."""
        config = self.config.cold_start

        def draw(step: int) -> list[Sample]:
            return [self._lesson(row) for row in range(step * config.batch, (step + 1) * config.batch)]

        def seen() -> float:
            eye: Eye = "blank" if self.config.blank else "open"
            found = answer_held_out(self.actor, self.config, self.curriculum, self.progress, eye, answers=64)
            report.look(found)
            return min(found.format, 1.0 if found.perception is None else found.perception)

        return cold_start(self.actor, config, draw, seen, report.batch)

    def _lesson(self, row: int) -> Sample:
        """A position of the cold start with a response to learn."""
        config = self.config
        seed = config.seed + _COLD * 2**32
        game = self.curriculum.pick(self.progress, seed, row).game
        state = game.from_json(sample_state(game, seed, row, config.states, config.reward).state)
        rng = np.random.default_rng([seed, row])
        text = teach(game, state, config.cold_start.teacher, config.cold_start.right, config.reward, rng)
        pictures = [blank(picture) if config.blank else picture for picture in game.images(state)]
        encoder = self.actor.encoder
        return Sample(encoder.encode(game.instructions(state), pictures), encoder.tokens(text))

    # Reinforcement learning -----------------------------------------------------------------------------------------

    def take_step(self) -> dict[str, float]:
        """Play, judge, learn; the step's numbers."""
        config, clock = self.config, time.perf_counter
        began = clock()
        rows = range(self.step * config.rows, (self.step + 1) * config.rows)
        where = (self.curriculum, self.progress, config.seed, rows, config.copies)
        seats = list(take_seats(*where, config.play, config.states, config.reward))
        placed = clock()
        look = blank if config.blank else None
        answers, scoring = roll_out(self.actor, seats, config.rollout, (config.seed, _RL), look)
        played = clock()
        lessons, facts = self._judge(answers)
        judged = clock()
        facts |= self._learn(lessons)
        learned = clock()
        for row in rows:
            group = [seat for seat in seats if seat.row == row]
            success = float(np.mean([self.curriculum.success(seat.pick, seat.turns) for seat in group]))
            self.progress = self.curriculum.after(self.progress, group[0].pick, success)
        if config.rollouts_every and self.step % config.rollouts_every == 0:
            self.run.record(self.step, seats, self.player(), config.copies)
        self.rewards = (self.rewards + [_total(seat.turns) for seat in seats])[-FINAL_EPISODES:]
        self.step += 1
        turns = [answer.turn for answer in answers]
        seen = [turn.reward.perception for turn in turns if turn.reward.perception is not None]
        return {
            "step": self.step,
            "reward": float(np.mean([answer.reward for answer in answers])),
            "episode_reward": float(np.mean([_total(seat.turns) for seat in seats])),
            "format": float(np.mean([turn.reward.format for turn in turns])),
            **({"perception": float(np.mean(seen))} if seen else {}),
            "played": float(np.mean([turn.outcome == "played" for turn in turns])),
            "tokens": float(np.mean([len(answer.sample.response) for answer in answers])),
            **facts,
            "seconds_states": placed - began,
            "seconds_generation": played - placed - scoring,
            "seconds_scoring": scoring,
            "seconds_judging": judged - played,
            "seconds_update": learned - judged,
            "seconds": clock() - began,
        }

    def _judge(self, answers: Sequence[Answer]) -> tuple[list[Lesson], dict[str, float]]:
        """Advantages of all tokens, and what else the update compares with."""
        config = self.config
        once = config.algorithm == "grpo"  # one update of all: probabilities have not moved since the rollout
        logprobs, values = (None, None) if once else self._measure(self.actor, answers)
        references = self._measure(self.reference, answers)[0] if self.reference is not None else None
        facts: dict[str, float] = {}
        if once:
            flat = grpo_advantages(answers, config.grpo)
            advantages = [np.full(len(answer.sample.response), better) for answer, better in zip(answers, flat)]
            returns = None
            facts["informative"] = informative(answers)
        else:
            assert values is not None
            advantages, returns = ppo_advantages(answers, values, config.ppo)
            facts["explained"] = explained_variance(np.concatenate(values), np.concatenate(returns))
            if config.ppo.whiten:
                flat_tokens = whitened(np.concatenate(advantages))
                advantages = np.split(flat_tokens, np.cumsum([len(each) for each in advantages])[:-1])
        lessons = [
            Lesson(
                answer.sample,
                advantages[place],
                logprobs=None if logprobs is None else logprobs[place],
                values=None if values is None else values[place],
                returns=None if returns is None else returns[place],
                reference=None if references is None else references[place],
            )
            for place, answer in enumerate(answers)
        ]
        return lessons, facts

    def _measure(self, actor: Actor, answers: Sequence[Answer]) -> tuple[list[Floats], list[Floats]]:
        """Log-probability and value of each token of each answer."""
        logprobs: list[Floats] = []
        values: list[Floats] = []
        size = self.config.update.micro_batch
        for first in range(0, len(answers), size):
            some = [answer.sample for answer in answers[first : first + size]]
            with torch.no_grad():
                measured = actor.measure(some, self.config.rollout.temperature)
            for row, sample in enumerate(some):
                length = len(sample.response)
                logprobs.append(measured.logprobs[row, :length].double().cpu().numpy())
                if measured.values is not None:
                    values.append(measured.values[row, :length].double().cpu().numpy())
        return logprobs, values

    def _learn(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Change the model."""
        config = self.config
        ppo = config.algorithm == "ppo"
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * min(1.0, (self.step + 1) / max(1, config.update.warmup))
        update = config.update
        if ppo:
            update = replace(update, clip_low=config.ppo.clip, clip_high=config.ppo.clip)
        facts = learn(
            self.actor,
            self.optimizer,
            lessons,
            update,
            Weights(
                value=config.ppo.value if ppo else 0.0,
                value_clip=config.ppo.value_clip,
                entropy=config.ppo.entropy if ppo else config.update.entropy,
                kl=self.kl,
            ),
            temperature=config.rollout.temperature,
            max_tokens=config.rollout.max_tokens,
            epochs=config.ppo.epochs if ppo else 1,
            minibatches=config.ppo.minibatches if ppo else 1,
            rng=np.random.default_rng([config.seed, _MINIBATCHES, self.step]),
        )
        if config.update.kl_target is not None and "kl" in facts:
            # Ziegler et al. 2019, section 2.2: proportional to the error, which counts as 20% at most.
            error = np.clip(facts["kl"] / config.update.kl_target - 1, -0.2, 0.2)
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
        """Write a checkpoint."""
        extra = {"rewards": self.rewards, "kl": self.kl}
        save_checkpoint(folder, self.step, self.actor, self.optimizer, self.progress, extra)

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


def train(config: TrainConfig, run: TrainingRun, console: Console) -> dict[str, Any]:
    """Train, from the beginning or from the last checkpoint, and return what `result.json` says.

    Raises:
        UsageError: An option is not accepted.
        TrainingError: The loss is not finite, or the memory is too small; the last checkpoint is good.
    """
    began = time.perf_counter()
    trainer = Trainer(config, run)
    checkpoint = last_checkpoint(run.checkpoints)
    if (cold := last_checkpoint(run.cold_start)) is not None:
        trainer.load(cold)
    elif checkpoint is None and config.cold_start.steps:
        with ColdStartProgress(console, config.cold_start.steps) as progress:
            taken = trainer.learn_to_respond(progress)
        trainer.save(run.cold_start)
        console.print(f"cold start: {taken} batches")
    trainer.keep_reference()
    if checkpoint is not None:
        trainer.load(checkpoint)
        console.print(f"going on after step {trainer.step}")
    before = measure(trainer, run.before, console) if trainer.step == 0 else None
    if before is not None:
        replace_file(run.measured, json.dumps(before).encode())
    else:
        before = json.loads(run.measured.read_text(encoding="utf-8"))
    run.begin_rollouts(config, trainer.curriculum, trainer.player())
    log = Curves(run.folder, config.wandb, after=trainer.step)
    with log as curves, StepProgress(console, config.steps) as progress:
        progress.show(trainer.step, {})
        while trainer.step < config.steps:
            row = trainer.take_step()
            curves.add(row)
            progress.show(trainer.step, row)
            if trainer.step % config.checkpoint_interval == 0 or trainer.step == config.steps:
                trainer.save(run.checkpoints)
                drop_old(run.checkpoints, config.keep)
    with writing(run.model):
        run.model.mkdir(exist_ok=True)
    trainer.actor.save(run.model)
    result = {
        "final_reward": float(np.mean(trainer.rewards)) if trainer.rewards else None,
        "total_steps": trainer.step,
        "total_episodes": trainer.step * config.rows * config.copies,
        "before": before,
        "after": measure(trainer, run.after, console),
        "seconds": time.perf_counter() - began,
        "paths": {
            "model": str(run.model),
            "curve": str(run.folder / "curve.png"),
            "rollouts": str(run.rollouts),
            "report": str(run.after / "report.html"),
        },
    }
    replace_file(run.result, (json.dumps(result, indent=1) + "\n").encode())
    return result


def measure(trainer: Trainer, folder: Path, console: Console) -> dict[str, Any]:
    """Held-out positions, and whole episodes on held-out seeds whose records go into a folder."""
    config = trainer.config
    found: dict[str, Any] = {}
    if config.evaluation.states:
        last = Curriculum.of([entry.stages[-1].game for entry in trainer.curriculum.entries])
        eye: Eye = "blank" if config.blank else "open"
        answered = answer_held_out(trainer.actor, config, last, last.begin(), eye)
        found["states"] = answered.plain()
        console.print(f"{folder.name}: {answered.words()}")
    if config.evaluation.episodes:
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left there
        summary = play_whole_episodes(trainer.actor, config, trainer.curriculum, trainer.step, folder, console)
        found["episodes"] = {
            game: {"score": one.score_mean, "interval": one.score_ci, "episodes": one.episodes}
            for game, one in summary.games.items()
        }
    return found


@contextmanager
def memory_errors() -> Iterator[None]:
    """Say what to lower when memory is used up."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, MemoryError):
        raise TrainingError(OUT_OF_MEMORY) from None
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # which is what torch says on a CPU
            raise TrainingError(OUT_OF_MEMORY) from None
        raise


def main(args: Sequence[str] | None = None) -> None:
    """The command line."""
    with reporting_errors():
        given = sys.argv[1:] if args is None else list(args)
        config = read_config(given)
        if config.resume is not None:
            run, config = TrainingRun.reopen(config.resume, given)
        else:
            run = TrainingRun.begin(config, given)
        console = terminal()
        console.print(f"run     {run.folder}", soft_wrap=True)
        try:
            with memory_errors():
                result = train(config, run, terminal(stderr=True))
        except (TrainingError, KeyboardInterrupt) as error:
            error.args = (f"{str(error) or 'interrupted'}; --resume {run.folder} goes on from the last checkpoint",)
            raise
        for name in ("before", "after"):
            if "states" in result[name]:
                console.print(f"{name:7} {HeldOut(**result[name]['states']).words()}")
        for name, path in result["paths"].items():
            console.print(f"{name:9}{path}", soft_wrap=True)


def informative(answers: Sequence[Answer]) -> float:
    """Share of episodes whose group did not all earn the same: from the others nothing is learned."""
    earned: dict[int, dict[int, float]] = {}
    for answer in answers:
        group = earned.setdefault(answer.row, {})
        group[answer.copy] = group.get(answer.copy, 0.0) + answer.reward
    return float(np.mean([np.ptp([*group.values()]) > 1e-9 for group in earned.values() for _ in group]))


def explained_variance(values: Any, returns: Any) -> float:
    """How much of the variance of returns a critic explains: 1 all of it, 0 none, less than 0 worse than their mean."""
    asked = ~np.isnan(returns)
    spread = np.var(returns[asked])
    return float(1 - np.var(returns[asked] - values[asked]) / spread) if spread > 0 else 0.0


def _total(turns: Sequence[Any]) -> float:
    return float(sum(turn.reward.overall for turn in turns))


if __name__ == "__main__":
    main()
