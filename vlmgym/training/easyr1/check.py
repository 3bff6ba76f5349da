"""Preflight checks that report the problems of a run in seconds, before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import torch
from verl.utils.checkpoint import CHECKPOINT_TRACKER, find_latest_ckpt

from vlmgym.curriculum import Curriculum
from vlmgym.curriculum.timetable import describe
from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text
from vlmgym.training.easyr1.config import RunConfig
from vlmgym.training.easyr1.machine import check_machine
from vlmgym.training.easyr1.prompt_stream import PromptStream
from vlmgym.training.easyr1.prompts import PromptEncoder, load_processors
from vlmgym.training.easyr1.section import Section
from vlmgym.training.easyr1.trained import changed_settings
from vlmgym.training.states import check_validation_size, start_rollouts

GROUPED, OTHERS = ("grpo", "rloo", "grpo_passk"), ("gae", "reinforce_plus_plus")
"""Advantage estimators that need several responses per prompt, and those that do not."""
UNUSED = (
    *("data.train_files", "data.val_files", "data.val_batch_size", "data.format_prompt", "data.image_dir"),
    *("data.mini_rollout_batch_size", "algorithm.online_filtering", "worker.reward", "trainer.total_epochs"),
    *("worker.rollout.val_override_config", "trainer.val_generations_to_log"),
)
"""EasyR1 settings that have no effect: the vlmgym section configures prompts, rewards and validation."""
STREAM, FILES = "dataloader.pt", ("model", "optim", "extra_state")
"""Files of a checkpoint: the state of `PromptStream`, and the files of each process (only `model` with
trainer.save_model_only)."""


def preflight(config: RunConfig, machine: bool = True) -> tuple[list[str], list[str]]:
    """Check a run; return its problems, and facts about it, as two lists of messages.

    Args:
        config: Configuration of the run.
        machine: Also check this machine, and the checkpoint from which the run would resume.

    Raises:
        UsageError: The section `vlmgym` is invalid.
    """
    section = Section.read(config.vlmgym)
    curriculum = section.make_curriculum()
    problems, facts = [*_settings(config, section)], list[str]()
    if sizes := list(_batches(config, section)):
        return [*problems, *sizes], facts  # the other checks divide by these sizes
    try:
        problems += check_machine(config, section, facts) if machine else ()
        problems += _prompts(config, section, curriculum, facts)
        games, option = [entry.stages[-1].game for entry in curriculum.entries], "vlmgym.validation.episodes"
        check_validation_size(games, section.states.validation_fraction, section.validation.episodes, option)
    except UsageError as error:
        problems.append(str(error))
    batch_size = config.data.rollout_batch_size // section.play.max_turns
    facts += describe(curriculum, batch_size, config.trainer.max_steps or 0, section.play.max_turns)
    return problems + [*check_checkpoint(config, section, curriculum)] * machine, facts


def _settings(config: RunConfig, section: Section) -> Iterator[str]:
    estimator, trainer, turns = config.algorithm.adv_estimator, config.trainer, section.play.max_turns
    rollout, defaults, accepted = config.worker.rollout, RunConfig(), ("grpo", "gae") if turns > 1 else GROUPED + OTHERS
    for name in UNUSED:
        if attrgetter(name)(config) != attrgetter(name)(defaults):
            yield f"{name} has no effect: remove it, and see the section vlmgym and trainer.max_steps"
    if trainer.max_steps is None:
        yield "trainer.max_steps must be set, because games never run out of prompts"
    if estimator not in accepted:
        yield f"algorithm.adv_estimator must be one of {', '.join(accepted)} with {turns} turn(s), got {estimator}"
    if estimator in GROUPED and rollout.n < 2:
        yield f"worker.rollout.n must be at least 2: {estimator} compares responses to the same prompt"
    if not rollout.temperature > 0:
        yield f"worker.rollout.temperature must be above 0 to sample different responses, got {rollout.temperature}"
    for name, part in config.trained.items():
        if turns > 1 and part.loss_avg_mode != "token":
            yield f"worker.{name}.loss_avg_mode must be token: other averages count the padding rows of episodes"
    if (trainer.val_only or trainer.val_freq > 0) and section.validation.episodes == 0:
        yield "trainer.val_only and trainer.val_freq need vlmgym.validation.episodes above 0"
    for name, limit in (("min_pixels", config.data.min_pixels), ("max_pixels", config.data.max_pixels)):
        if limit is not None:
            yield f"data.{name} must be null, got {limit}: it resizes images in training only; set the game's size"
    for name in set(trainer.logger) - {"vlmgym", "console", "file"}:
        if find_spec(name) is None:
            yield f"trainer.logger names {name}, which is not installed"


def _batches(config: RunConfig, section: Section) -> Iterator[str]:
    """Yield sizes that do not divide a total as they must; EasyR1 reports these late or not at all."""
    rollout, gpus = config.worker.rollout, config.trainer.n_gpus_per_node * config.trainer.nnodes
    turns, prompts = section.play.max_turns, config.data.rollout_batch_size
    pairs = [
        ("vlmgym.play.max_turns", turns, "data.rollout_batch_size", prompts),
        ("worker.rollout.tensor_parallel_size", rollout.tensor_parallel_size, "GPUs", gpus),
    ]
    for name, part in config.trained.items():
        at, batch, ranks = f"worker.{name}", part.global_batch_size, max(1, gpus // max(1, part.ulysses_size))
        share, update = batch * rollout.n // ranks, part.micro_batch_size_per_device_for_update
        forward = part.micro_batch_size_per_device_for_experience
        forward *= 1 if part.dynamic_batching or turns > 1 else gpus
        pairs += [
            (f"{at}.global_batch_size", batch, "data.rollout_batch_size", prompts),
            (f"{at}.ulysses_size", part.ulysses_size, "GPUs", gpus),
            ("GPUs / ulysses_size", ranks, f"{at}.global_batch_size * worker.rollout.n", batch * rollout.n),
            (f"{at}.micro_batch_size_per_device_for_update", update, "the minibatch of each GPU", share),
            (f"{at}.micro_batch_size_per_device_for_experience x GPUs", forward, "all responses", prompts * rollout.n),
        ]
    for name, size, of, total in pairs:
        if size < 1 or total < 1 or total % size:
            yield f"{name}={size} must divide {of}={total}"


def _prompts(config: RunConfig, section: Section, curriculum: Curriculum, facts: list[str]) -> Iterator[str]:
    """Yield limits that the longest prompts would exceed, estimated from a few initial states of each stage."""
    data, rollout, play = config.data, config.worker.rollout, section.play
    encoder = PromptEncoder(*load_processors(config.worker.actor.model, data), data)
    encoder.max_prompt_length = 65_536  # longer than any limit, so that all lengths are measured
    tokens = images = longest = most = 0
    for stage in (stage for entry in curriculum.entries for stage in entry.stages):
        alone, options = Curriculum.of([stage.game]), (section.play, section.states, section.reward)
        picks = alone.picks(alone.begin(), data.seed, range(4))
        for episode in start_rollouts(picks, data.seed, 1, *options):
            first = episode.observation
            length = int(encoder.encode(first.messages, first.images)["attention_mask"].sum())
            past = play.past_turns(stage.game.history)
            with_images = min(past, play.of(stage.game.history).image_turns)
            shown = past if play.chat and play.has_descriptions else with_images
            tokens, images = max(tokens, length), max(images, len(first.images))
            longest = max(longest, length * (1 + shown) + past * data.max_response_length)
            most = max(most, len(first.images) * (1 + with_images))
    facts.append(f"prompts have up to {tokens:,} tokens and {images} image(s), without earlier turns")
    if longest > data.max_prompt_length:
        yield f"prompts have up to {longest:,} tokens, but data.max_prompt_length is {data.max_prompt_length:,}"
    if rollout.limit_images and most > rollout.limit_images:
        yield f"prompts have {most} images, but worker.rollout.limit_images is {rollout.limit_images}"
    if rollout.max_num_batched_tokens < (needed := data.max_prompt_length + data.max_response_length):
        yield f"worker.rollout.max_num_batched_tokens must be at least {needed}, the longest prompt and response"


def check_checkpoint(config: RunConfig, section: Section, curriculum: Curriculum) -> Iterator[str]:
    """Yield problems with the checkpoint that EasyR1 would resume from: it must exist and fit this run's settings."""
    trainer, named = config.trainer, config.trainer.load_checkpoint_path
    if named is None and trainer.find_last_checkpoint:
        tracker = Path(str(trainer.save_checkpoint_path)) / CHECKPOINT_TRACKER
        named, _ = find_latest_ckpt(trainer.save_checkpoint_path)
        if named is None and tracker.exists():  # EasyR1 would start over
            yield f"{tracker} names no checkpoint: set trainer.load_checkpoint_path to one, or choose another OUT"
    if named is None:
        return
    folder, ranks = Path(named), trainer.n_gpus_per_node * trainer.nnodes
    files = [f"{part}/{file}_world_size_{ranks}_rank_0.pt" for part in config.trained for file in FILES]
    if missing := [name for name in (*files, STREAM) if not (folder / name).is_file()]:
        why = "it was saved with another number of GPUs, without a critic, or with trainer.save_model_only"
        yield f"cannot resume from {folder}, which has no {missing[0]}: {why}"
        return
    try:
        if changed := changed_settings(folder, config, section, curriculum):
            yield f"cannot resume from {folder} with other settings: {'; '.join(changed)}"
        PromptStream(curriculum, config.data.seed, 1).load_state_dict(torch.load(folder / STREAM, weights_only=True))
    except Exception as error:  # torch raises almost anything for a damaged file
        yield f"cannot resume from {folder}: {STREAM}: {error_text(error)}"
