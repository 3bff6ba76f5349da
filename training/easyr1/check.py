"""Preflight checks: report the problems of a run in seconds, before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from operator import attrgetter

from training.core.states import check_validation_size, start_rollouts
from training.easyr1.config import RunConfig
from training.easyr1.machine import check_machine
from training.easyr1.prompts import PromptEncoder, load_processors
from training.easyr1.resume import check_checkpoint
from training.easyr1.section import Section
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError

COMPARING = ("grpo", "rloo", "grpo_passk")
"""Estimators that compare the responses to one prompt."""
ESTIMATORS = (*COMPARING, "gae", "reinforce_plus_plus")
LORA_RANKS = (0, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM 0.11 accepts; 0 trains all weights."""
UNUSED = (
    *("data.train_files", "data.val_files", "data.val_batch_size", "data.format_prompt", "data.image_dir"),
    *("data.mini_rollout_batch_size", "algorithm.online_filtering", "worker.reward", "trainer.total_epochs"),
    *("worker.rollout.val_override_config", "trainer.val_generations_to_log"),
)
"""EasyR1 settings without effect: prompts, rewards and validation are configured in the section vlmgym."""


def check_run(config: RunConfig, machine: bool = True) -> tuple[list[str], list[str]]:
    """Check a configuration and, unless `machine` is False, the machine; return problems and facts.

    Raises:
        UsageError: The section `vlmgym` is invalid.
    """
    section = Section.read(config.vlmgym)
    curriculum = section.make_curriculum()
    problems, facts = [*_settings(config, section)], list[str]()
    if sizes := list(_batches(config, section)):
        return [*problems, *sizes], facts  # the other checks divide by these sizes
    try:
        for problem in check_machine(config, section, facts) if machine else ():
            problems.append(problem)
        problems += _prompts(config, section, curriculum, facts)
        games = [entry.stages[-1].game for entry in curriculum.entries]
        check_validation_size(
            games, section.states.validation_fraction, section.validation.episodes, "vlmgym.validation.episodes"
        )
    except UsageError as error:
        problems.append(str(error))
    return problems + [*check_checkpoint(config, curriculum)] * machine, facts


def _settings(config: RunConfig, section: Section) -> Iterator[str]:
    estimator, trainer, turns = config.algorithm.adv_estimator, config.trainer, section.play.max_turns
    rollout, rank = config.worker.rollout, config.worker.actor.model.lora.rank
    defaults, accepted = RunConfig(), ("grpo", "gae") if turns > 1 else ESTIMATORS
    for name in UNUSED:
        if attrgetter(name)(config) != attrgetter(name)(defaults):
            yield f"{name} has no effect here: remove it, and see the section vlmgym and trainer.max_steps"
    if trainer.max_steps is None:
        yield "trainer.max_steps must be set, because games never run out of prompts"
    if estimator not in accepted:
        yield f"algorithm.adv_estimator must be one of {', '.join(accepted)} with {turns} turn(s), got {estimator}"
    if estimator in COMPARING and rollout.n < 2:
        yield f"worker.rollout.n must be at least 2: {estimator} compares responses to the same prompt"
    if not rollout.temperature > 0:
        yield f"worker.rollout.temperature must be above 0 to sample different responses, got {rollout.temperature}"
    if not 0 < rollout.gpu_memory_utilization <= 1:
        yield f"worker.rollout.gpu_memory_utilization must be in (0, 1], got {rollout.gpu_memory_utilization}"
    if rank not in LORA_RANKS:
        yield f"worker.actor.model.lora.rank must be one of {', '.join(map(str, LORA_RANKS))}, got {rank}"
    for name, part in config.trained.items():
        if turns > 1 and part.loss_avg_mode != "token":
            yield f"worker.{name}.loss_avg_mode must be token: other averages count the padding rows of episodes"
    if (trainer.val_only or trainer.val_freq > 0) and section.validation.episodes == 0:
        yield "trainer.val_only and trainer.val_freq need vlmgym.validation.episodes above 0"
    if trainer.val_only and not trainer.val_before_train:
        yield "trainer.val_only needs trainer.val_before_train=true"
    for name in set(trainer.logger) - {"vlmgym", "console", "file"}:
        if find_spec(name) is None:
            yield f"trainer.logger names {name}, which is not installed"


def _batches(config: RunConfig, section: Section) -> Iterator[str]:
    """Find sizes that do not divide, which EasyR1 reports late or not at all."""
    gpus, rollout, turns = (
        config.trainer.n_gpus_per_node * config.trainer.nnodes,
        config.worker.rollout,
        section.play.max_turns,
    )
    prompts, rows = config.data.rollout_batch_size, config.data.rollout_batch_size * rollout.n
    pairs = [
        ("vlmgym.play.max_turns", turns, "data.rollout_batch_size", prompts),
        ("worker.rollout.tensor_parallel_size", rollout.tensor_parallel_size, "GPUs", gpus),
    ]
    for name, part in config.trained.items():
        at, batch, ranks = f"worker.{name}", part.global_batch_size, max(1, gpus // max(1, part.ulysses_size))
        share, update = batch * rollout.n // ranks, part.micro_batch_size_per_device_for_update
        passes = part.micro_batch_size_per_device_for_experience
        passes *= 1 if part.dynamic_batching or turns > 1 else gpus
        pairs += [
            (f"{at}.global_batch_size", batch, "data.rollout_batch_size", prompts),
            (f"{at}.fsdp.fsdp_size", part.fsdp.fsdp_size if 0 < part.fsdp.fsdp_size < gpus else 1, "GPUs", gpus),
            (f"{at}.ulysses_size", part.ulysses_size, "GPUs", gpus),
            ("GPUs / ulysses_size", ranks, f"{at}.global_batch_size * worker.rollout.n", batch * rollout.n),
            (f"{at}.micro_batch_size_per_device_for_update", update, "the minibatch of each GPU", share),
            (f"{at}.micro_batch_size_per_device_for_experience on all GPUs", passes, "the responses of a step", rows),
        ]
        if part.fsdp.enable_cpu_offload and share != update:
            setting = f"{at}.micro_batch_size_per_device_for_update={share}"
            yield f"{at}.fsdp.enable_cpu_offload cannot accumulate gradients: set {setting}, or it to false"
    for name, size, of, total in pairs:
        if size < 1 or total < 1 or total % size:
            yield f"{name}={size} must divide {of}={total}"


def _prompts(config: RunConfig, section: Section, curriculum: Curriculum, facts: list[str]) -> Iterator[str]:
    """Compare the limits with the longest prompt among first states of all stages."""
    data, rollout, play = config.data, config.worker.rollout, section.play
    encoder = PromptEncoder(*load_processors(config.worker.actor.model, data), data)
    encoder.max_prompt_length = 65_536  # longer than any limit, so that all lengths are measured
    tokens = images = 0
    for stage in (stage for entry in curriculum.entries for stage in entry.stages):
        alone, options = Curriculum.of([stage.game]), (section.play, section.states, section.reward)
        for episode in start_rollouts(alone, alone.begin(), data.seed, range(4), 1, *options):
            length = int(encoder.encode(episode.observation.prompt, episode.observation.images)["attention_mask"].sum())
            tokens, images = max(tokens, length), max(images, len(episode.observation.images))
    facts.append(f"prompts have up to {tokens:,} tokens and {images} image(s), without earlier turns")
    total = tokens * (1 + play.history_images) + play.history * data.max_response_length
    if tokens > data.max_prompt_length or (play.history and total > data.max_prompt_length):
        yield f"prompts have up to {total:,} tokens, but data.max_prompt_length is {data.max_prompt_length:,}"
    if rollout.limit_images and (shown := images * (1 + play.history_images)) > rollout.limit_images:
        yield f"prompts have {shown} images, but worker.rollout.limit_images is {rollout.limit_images}"
    if rollout.max_num_batched_tokens < (needed := data.max_prompt_length + data.max_response_length):
        yield f"worker.rollout.max_num_batched_tokens must be at least {needed}, the longest prompt and response"
