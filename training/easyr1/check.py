"""Says before a run what would not work in it, in seconds instead of after the models are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl.utils.logger.logger import LOGGERS

from training.core.seats import take_seats
from training.core.split import check_held_out
from training.easyr1.config import RunConfig
from training.easyr1.machine import look_at_machine
from training.easyr1.prompts import PromptEncoder, load_processors
from training.easyr1.resume import checkpoint_problems
from training.easyr1.section import Section
from training.easyr1.values import wrong_values
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError

ESTIMATORS = ("grpo", "gae", "rloo", "reinforce_plus_plus", "grpo_passk")
LONGEST = 65_536
"""Prompt tokens that are looked at; a prompt is longer than data.max_prompt_length or not."""
OWN_LOGGER = "vlmgym"
"""Of `mends`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked at.

    Attributes:
        problems: What would not work, and what to change.
        facts: What is worth knowing.
    """

    problems: list[str]
    facts: list[str]


def check_run(config: RunConfig, machine: bool = True) -> Checked:
    """Look at a configuration, and at the machine it is to run on.

    Args:
        config: Of `read_config`.
        machine: Whether to look at GPUs, memory and installed packages, too.

    Raises:
        UsageError: The section `vlmgym` is not accepted.
    """
    section = Section.read(config.vlmgym)
    curriculum = section.make_curriculum()
    if problems := list(wrong_values(config)):  # by counts others are divided
        return Checked(problems, [])
    problems = [*_settings(config, section), *_divisibility(config, section), *_held_out(section, curriculum)]
    facts: list[str] = []
    try:
        longest, pictures, tokens = _prompts(config, section, curriculum)
    except UsageError as error:
        problems.append(str(error))
    else:
        facts.append(f"prompts have up to {longest:,} tokens, {tokens:,} of them of {pictures} picture(s)")
        problems += _room(config, section, longest, pictures)
    if machine:
        lacks, takes = look_at_machine(config)
        problems += [*lacks, *checkpoint_problems(config, curriculum)]
        problems, facts = list(dict.fromkeys(problems)), facts + takes  # a missing model is seen twice
    return Checked(problems, facts)


def _settings(config: RunConfig, section: Section) -> Iterator[str]:
    algorithm, turns = config.algorithm, section.play.turns
    if config.trainer.max_steps is None:
        yield "trainer.max_steps is not set, and live positions never end"
    if algorithm.adv_estimator not in ESTIMATORS:
        yield f"algorithm.adv_estimator is one of {', '.join(ESTIMATORS)}, not {algorithm.adv_estimator}"
    elif turns > 1 and algorithm.adv_estimator not in ("grpo", "gae"):
        yield f"whole episodes are learned from by grpo or gae, not by {algorithm.adv_estimator}"
    for name, part in config.trained.items() if turns > 1 else ():
        if part.loss_avg_mode != "token":
            yield f"worker.{name}.loss_avg_mode counts rows that only fill up a batch of episodes: set it to token"
    if algorithm.adv_estimator in ("grpo", "rloo", "grpo_passk") and config.worker.rollout.n < 2:
        yield f"{algorithm.adv_estimator} compares answers to one position: worker.rollout.n is 2 or more"
    if algorithm.online_filtering:
        yield "algorithm.online_filtering is not supported: set vlmgym.states.informative=true to draw other positions"
    if config.data.mini_rollout_batch_size is not None:
        yield "data.mini_rollout_batch_size is not supported: leave it out"
    if (config.trainer.val_only or config.trainer.val_freq > 0) and section.validation.episodes == 0:
        asks = "val_only" if config.trainer.val_only else "val_freq"
        yield f"trainer.{asks} asks for validation, and vlmgym.validation.episodes is 0"
    if config.trainer.val_only and not config.trainer.val_before_train:
        yield "trainer.val_only ends a run after the validation before training: set trainer.val_before_train=true"
    if strange := [name for name in config.trainer.logger if name not in {*LOGGERS, OWN_LOGGER}]:
        known = ", ".join([OWN_LOGGER, *LOGGERS])
        yield f"trainer.logger is a list of {known}; there is no {', '.join(strange)}"


def _held_out(section: Section, curriculum: Curriculum) -> Iterator[str]:
    """Validation asks no question of a table that is trained on."""
    games = [entry.stages[-1].game for entry in curriculum.entries]
    try:
        check_held_out(games, section.states.held_out, section.validation.episodes, "vlmgym.validation.episodes")
    except UsageError as error:
        yield str(error)


def _divisibility(config: RunConfig, section: Section) -> Iterator[str]:
    """What EasyR1 would find out in its workers, or not at all."""
    worker, gpus = config.worker, config.trainer.n_gpus_per_node * config.trainer.nnodes
    rows, n, turns = config.data.rollout_batch_size, config.worker.rollout.n, section.play.turns
    if rows % turns:
        yield f"data.rollout_batch_size={rows} is no multiple of vlmgym.play.turns={turns}"
    if gpus % worker.rollout.tensor_parallel_size:
        yield f"worker.rollout.tensor_parallel_size={worker.rollout.tensor_parallel_size} does not divide {gpus} GPUs"
    for name, part in config.trained.items():
        size, place = part.global_batch_size, f"worker.{name}"
        if rows % size:
            yield f"{place}.global_batch_size={size} does not divide data.rollout_batch_size={rows}"
        if 0 < part.fsdp.fsdp_size < gpus and gpus % part.fsdp.fsdp_size:
            yield f"{place}.fsdp.fsdp_size={part.fsdp.fsdp_size} does not divide {gpus} GPUs"
        if gpus % part.ulysses_size:
            yield f"{place}.ulysses_size={part.ulysses_size} does not divide {gpus} GPUs"
            continue
        ranks = gpus // part.ulysses_size
        each = size * n // ranks
        if size * n % ranks:
            yield f"{place}.global_batch_size x worker.rollout.n = {size * n} is no multiple of {ranks} GPUs"
        elif each % part.micro_batch_size_per_device_for_update:
            name = f"{place}.micro_batch_size_per_device_for_update={part.micro_batch_size_per_device_for_update}"
            yield f"{name} does not divide the {each} rows of a minibatch on each GPU"
        elif part.fsdp.enable_cpu_offload and each != part.micro_batch_size_per_device_for_update:
            name = f"{place}.micro_batch_size_per_device_for_update={each}"
            yield f"{place}.fsdp.enable_cpu_offload takes a minibatch at once: set {name}, or it to false"
        passed = part.micro_batch_size_per_device_for_experience
        if rows * n % passed or (not part.dynamic_batching and turns == 1 and rows * n % (passed * gpus)):
            yield f"{place}.micro_batch_size_per_device_for_experience={passed} does not divide the rows of a step"


def _prompts(config: RunConfig, section: Section, curriculum: Curriculum) -> tuple[int, int, int]:
    """Tokens of the longest first prompt at all stages, its pictures, and their tokens; history comes on top."""
    tokenizer, processor = load_processors(config.worker.actor.model, config.data)
    encoder = PromptEncoder(tokenizer, processor, config.data)
    encoder.max_prompt_length = LONGEST
    longest = pictures = tokens = 0
    for entry in curriculum.entries:
        for stage in entry.stages:
            alone = Curriculum.of([stage.game])
            seats = take_seats(
                alone, alone.begin(), config.data.seed, range(4), 1, section.play, section.states, section.reward
            )
            for seat in seats:
                shown = seat.position.images
                encoded = encoder.encode(seat.position.prompt, shown)
                length = int(encoded["attention_mask"].sum())
                if length > longest:
                    longest, pictures = length, len(shown)
                    tokens = length - len(encoded["raw_prompt_ids"]) + len(shown)
    return longest, pictures, tokens


def _room(config: RunConfig, section: Section, longest: int, pictures: int) -> Iterator[str]:
    data, rollout = config.data, config.worker.rollout
    shown = pictures * (1 + section.play.history_images)
    with_history = longest * (1 + section.play.history_images) + section.play.history * data.max_response_length
    if longest > data.max_prompt_length:
        yield f"prompts have {longest:,} tokens, and data.max_prompt_length is {data.max_prompt_length:,}"
    elif section.play.history and with_history > data.max_prompt_length:
        yield (
            f"with {section.play.history} earlier turns prompts may have {with_history:,} tokens, and "
            f"data.max_prompt_length is {data.max_prompt_length:,}"
        )
    if rollout.limit_images and shown > rollout.limit_images:
        yield f"prompts show {shown} pictures, and worker.rollout.limit_images is {rollout.limit_images}"
    if rollout.max_num_batched_tokens < data.max_prompt_length + data.max_response_length:
        whole = (
            f"data.max_prompt_length + data.max_response_length = {data.max_prompt_length + data.max_response_length}"
        )
        yield f"worker.rollout.max_num_batched_tokens={rollout.max_num_batched_tokens} is less than {whole}"
