"""Says before a run what would not work in it, in seconds instead of after the models are loaded."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import torch

from training.core.seats import take_seats
from training.easyr1.config import RunConfig
from training.easyr1.prompts import PromptEncoder, load_processors
from training.easyr1.section import Section
from vlmgym.curriculum import Curriculum

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements" / "easyr1.txt"
ESTIMATORS = ("grpo", "gae", "rloo", "reinforce_plus_plus", "grpo_passk")
LONGEST = 65_536
"""Prompt tokens that are looked at; a prompt is longer than data.max_prompt_length or not."""
BYTES_PER_PARAMETER = {"adamw": 16, "adamw_bf16": 8}
"""Of weights, gradient and two moments, where all of them are kept in host memory between uses."""


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
        UsageError: The section `vlmgym` is not accepted, or the model's processor does not load.
    """
    section = Section.read(config.vlmgym)
    curriculum = section.make_curriculum()
    problems = [*_settings(config, section), *_divisibility(config, section)]
    facts: list[str] = []
    if not problems:
        longest, pictures, tokens = _prompts(config, section, curriculum)
        facts.append(f"prompts have up to {longest:,} tokens, {tokens:,} of them of {pictures} picture(s)")
        problems += _room(config, longest, pictures)
    if machine:
        problems += _machine(config)
    return Checked(problems, facts)


def _settings(config: RunConfig, section: Section) -> Iterator[str]:
    algorithm, turns = config.algorithm, section.play.turns
    if config.worker.actor.model.model_path is None:
        yield "worker.actor.model.model_path names no model"
    if config.trainer.max_steps is None:
        yield "trainer.max_steps is not set, and live positions never end"
    if algorithm.adv_estimator not in ESTIMATORS:
        yield f"algorithm.adv_estimator is one of {', '.join(ESTIMATORS)}, not {algorithm.adv_estimator}"
    elif turns > 1 and algorithm.adv_estimator not in ("grpo", "gae"):
        yield f"whole episodes are learned from by grpo or gae, not by {algorithm.adv_estimator}"
    if algorithm.adv_estimator in ("grpo", "rloo", "grpo_passk") and config.worker.rollout.n < 2:
        yield f"{algorithm.adv_estimator} compares answers to one position: worker.rollout.n is 2 or more"
    if algorithm.online_filtering:
        yield "algorithm.online_filtering is not supported: set vlmgym.states.informative=true to draw other positions"
    if config.data.mini_rollout_batch_size is not None:
        yield "data.mini_rollout_batch_size is not supported: leave it out"
    if not config.trainer.val_only and config.trainer.val_freq > 0 and section.validation.episodes == 0:
        yield "trainer.val_freq asks for validation, and vlmgym.validation.episodes is 0"


def _divisibility(config: RunConfig, section: Section) -> Iterator[str]:
    """What EasyR1 would find out in its workers, or not at all."""
    worker, gpus = config.worker, config.trainer.n_gpus_per_node * config.trainer.nnodes
    rows, n, turns = config.data.rollout_batch_size, config.worker.rollout.n, section.play.turns
    if rows % turns:
        yield f"data.rollout_batch_size={rows} is no multiple of vlmgym.play.turns={turns}"
    if gpus % worker.rollout.tensor_parallel_size:
        yield f"worker.rollout.tensor_parallel_size={worker.rollout.tensor_parallel_size} does not divide {gpus} GPUs"
    parts: dict[str, Any] = {"actor": worker.actor}
    if config.algorithm.adv_estimator == "gae":
        parts["critic"] = worker.critic
    for name, part in parts.items():
        size, place = part.global_batch_size, f"worker.{name}"
        if rows % size:
            yield f"{place}.global_batch_size={size} does not divide data.rollout_batch_size={rows}"
        ranks = gpus // part.ulysses_size
        each = size * n // ranks
        if size * n % ranks:
            yield f"{place}.global_batch_size x worker.rollout.n = {size * n} is no multiple of {ranks} GPUs"
        elif each % part.micro_batch_size_per_device_for_update:
            name = f"{place}.micro_batch_size_per_device_for_update={part.micro_batch_size_per_device_for_update}"
            yield f"{name} does not divide the {each} rows of a minibatch on each GPU"
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


def _room(config: RunConfig, longest: int, pictures: int) -> Iterator[str]:
    section = Section.read(config.vlmgym)
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


def _machine(config: RunConfig) -> Iterator[str]:
    trainer = config.trainer
    gpus = torch.cuda.device_count()
    if trainer.nnodes == 1 and gpus < trainer.n_gpus_per_node:
        yield f"trainer.n_gpus_per_node={trainer.n_gpus_per_node}, and this machine has {gpus} GPU(s) with CUDA"
    for gpu in range(min(gpus, trainer.n_gpus_per_node)):
        free, all_ = torch.cuda.mem_get_info(gpu)
        if free < 0.9 * all_:
            yield f"GPU {gpu} has {free / 2**30:.0f} of {all_ / 2**30:.0f} GiB free: another program uses it"
    for package in ("vllm", "flash_attn"):
        if find_spec(package) is None:
            yield f"{package} is not installed: run bash setup.sh --train on a machine with a GPU"
    if (installed := easyr1_commit()) != (wanted := wanted_commit()):
        yield f"EasyR1 is installed at commit {installed}, and this was written for {wanted}: run bash setup.sh --train"
    needed, free_memory = _host_memory(config), psutil.virtual_memory().available
    if needed and needed > free_memory:
        yield (
            f"about {needed / 2**30:.0f} GiB of host memory are needed for offloaded weights and moments, and "
            f"{free_memory / 2**30:.0f} are free: add configs/low_memory.yaml or configs/lora.yaml, or offload less"
        )


def _host_memory(config: RunConfig) -> int:
    """A lower bound in bytes, from the size of a local checkpoint; 0 where that is not known."""
    actor = config.worker.actor
    folder = Path(str(actor.model.model_path))
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else 0
    if actor.model.lora.rank or not actor.offload.offload_optimizer:
        return weights
    models = 2 if config.algorithm.adv_estimator == "gae" else 1
    return models * weights // 2 * BYTES_PER_PARAMETER.get(actor.optim.strategy, 16)


def easyr1_commit() -> str | None:
    """The commit that EasyR1 was installed from; None where it was not installed from git."""
    try:
        text = importlib.metadata.distribution("verl").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    return str(commit) if commit else None


def wanted_commit() -> str:
    """The commit that this is written for."""
    return REQUIREMENTS.read_text(encoding="utf-8").strip().rsplit("@", 1)[-1]
