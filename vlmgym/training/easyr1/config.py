"""Configuration of a run, the checks before it starts, and what of it a checkpoint records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from transformers import AutoConfig, AutoModelForImageTextToText
from verl.trainer.config import PPOConfig
from verl.utils.checkpoint import CHECKPOINT_TRACKER, find_latest_ckpt
from verl.utils.torch_dtypes import PrecisionType

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.curriculum.schedule import describe
from vlmgym.errors import UsageError, first_line
from vlmgym.policies.checkpoint import error_text
from vlmgym.rollout.trained import TRAINED, TrainedRecord
from vlmgym.rollout.turn import LiveEpisode, Observation
from vlmgym.runs.record import changes
from vlmgym.sandbox.core.reward import score_response
from vlmgym.training.easyr1.batch import PromptEncoder, load_processors
from vlmgym.training.easyr1.episodes import PromptStream
from vlmgym.training.easyr1.settings import BROKEN, Section, check_model, merge_settings
from vlmgym.training.records import make_trained_record
from vlmgym.training.states import check_validation_size, start_rollouts
from vlmgym.training.transformers4 import saved_by_transformers5

GROUPED, OTHERS = ("grpo", "rloo", "grpo_passk"), ("gae", "reinforce_plus_plus")
"""Advantage estimators that need several responses per prompt, and those that do not."""
LOSSES = ("default", "gspo", "gspo_token", "cispo", "sapo")
"""Policy losses of EasyR1 (trainer/core_algos.py), which takes any other name for `default`."""
UNUSED = (
    *("data.train_files", "data.val_files", "data.val_batch_size", "data.format_prompt", "data.image_dir"),
    *("data.mini_rollout_batch_size", "algorithm.online_filtering", "worker.reward", "trainer.total_epochs"),
    *("worker.rollout.val_override_config", "trainer.val_generations_to_log"),
)
"""EasyR1 settings that have no effect: the vlmgym section configures prompts, rewards and validation."""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of LoRA adapters that vLLM 0.11 accepts (vllm/config/lora.py)."""
STREAM, FILES = "dataloader.pt", ("model", "optim", "extra_state")
"""Files of a checkpoint: the state of `PromptStream`, and the files of each process (only `model` with
trainer.save_model_only)."""


@dataclass
class RunConfig(PPOConfig):
    """EasyR1's configuration, extended with a `vlmgym` section."""

    vlmgym: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> dict[str, Any]:
        """Settings of the trained parts of `worker`, keyed by name: the actor and, if used, the critic."""
        worker = self.worker
        critic = {"critic": worker.critic} if self.algorithm.adv_estimator == "gae" else {}
        return {"actor": worker.actor, **critic}


def read_config(args: Sequence[str]) -> RunConfig:
    """Merge YAML files, then settings such as `a.b=value`; raise `UsageError` if any of them is invalid."""
    merged = merge_settings(OmegaConf.structured(RunConfig()), args)
    try:
        config: RunConfig = OmegaConf.to_object(merged)
        for name, path in (
            ("trainer.load_checkpoint_path", config.trainer.load_checkpoint_path),
            ("data.override_chat_template", config.data.override_chat_template),
        ):
            if path is not None and not Path(path).exists():  # EasyR1 would ignore it (utils/py_functional.py)
                raise UsageError(f"{name}={path}: no such file or folder")
        critic, actor = config.worker.critic.model, config.worker.actor.model
        critic.model_path = critic.model_path or actor.model_path
        config.deep_post_init()
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise UsageError(first_line(error)) from None
    return config


def preflight(config: RunConfig, machine: bool = True) -> tuple[list[str], list[str]]:
    """Check a run; return its problems, and facts about it, as two lists of messages.

    Args:
        config: Configuration of the run.
        machine: Also check this machine, and the checkpoint from which the run would resume.

    Raises:
        UsageError: The section `vlmgym` is invalid.
    """
    section = Section.read(config.vlmgym)
    curriculum, facts = section.make_curriculum(), list[str]()
    problems, sizes = [*_settings(config, section)], [*_batches(config, section)]
    checks = [_installation(config.trainer, section)] if machine else []
    if not sizes and machine:  # these checks divide by the sizes
        checks += [check_machine(config, section, facts), check_checkpoint(config, section, curriculum)]
    if not sizes:
        checks.append(_prompts(config, section, curriculum, facts))
    problems += sizes
    for check in checks:
        try:
            problems += check
        except UsageError as error:  # ends this check
            problems.append(str(error))
    prompts = config.data.rollout_batch_size // section.play.max_turns
    facts += describe(curriculum, prompts, config.trainer.max_steps or 0, section.play.max_turns)
    return [*dict.fromkeys(problems)], facts


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
    if (loss := config.worker.actor.loss_type) not in LOSSES:
        yield f"worker.actor.loss_type must be one of {', '.join(LOSSES)}, got {loss}"
    if not rollout.temperature > 0:
        yield f"worker.rollout.temperature must be above 0 to sample different responses, got {rollout.temperature}"
    for name, part in config.trained.items():
        if part.ulysses_size != 1:
            yield f"worker.{name}.ulysses_size must be 1, because EasyR1 cannot split images, got {part.ulysses_size}"
        if turns > 1 and part.loss_avg_mode != "token":
            yield f"worker.{name}.loss_avg_mode must be token: other averages count the padding rows of episodes"
    if (rank := config.worker.actor.model.lora.rank) not in (0, *LORA_RANKS):
        yield f"worker.actor.model.lora.rank must be one of {', '.join(map(str, LORA_RANKS))} for vLLM, got {rank}"
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
        at, batch = f"worker.{name}", part.global_batch_size
        share, update = batch * rollout.n // max(1, gpus), part.micro_batch_size_per_device_for_update
        forward = part.micro_batch_size_per_device_for_experience
        forward *= 1 if part.dynamic_batching or turns > 1 else gpus
        pairs += [
            (f"{at}.global_batch_size", batch, "data.rollout_batch_size", prompts),
            ("GPUs", gpus, f"{at}.global_batch_size * worker.rollout.n", batch * rollout.n),
            (f"{at}.micro_batch_size_per_device_for_update", update, "the minibatch of each GPU", share),
            (f"{at}.micro_batch_size_per_device_for_experience x GPUs", forward, "all responses", prompts * rollout.n),
        ]
    for name, size, of, total in pairs:
        if size < 1 or total < 1 or total % size:
            yield f"{name}={size} must divide {of}={total}"


def _prompts(config: RunConfig, section: Section, curriculum: Curriculum, facts: list[str]) -> Iterator[str]:
    """Yield limits that the longest prompts would exceed, measured in a few episodes of each stage.

    The responses in these episodes are invalid, because feedback makes prompts longer.

    Raises:
        UsageError: A game has too few questions for validation.
    """
    data, rollout, play = config.data, config.worker.rollout, section.play
    encoder = PromptEncoder(*load_processors(config.worker.actor.model, data), data)
    encoder.max_prompt_length = 65_536  # longer than any limit, so that all lengths are measured
    bootstraps = play.max_turns > 1 and config.algorithm.adv_estimator == "gae"  # from a prompt after the last turn
    turns = max(play.max_turns + bootstraps, section.validation.max_turns if section.validation.episodes else 1)
    play = replace(play, max_turns=turns)

    def count(observation: Observation) -> int:
        return int(encoder.encode(observation.messages, observation.images)["attention_mask"].sum())

    tokens = longest = images = 0
    for stage in (stage for entry in curriculum.entries for stage in entry.stages):
        alone, options = Curriculum.of([stage.game]), (play, section.states, section.reward)
        repeated = play.past_turns(stage.game.history)
        for episode in start_rollouts(alone.picks(alone.begin(), data.seed, range(4)), data.seed, 1, *options):
            last, response = episode.observation, invalid_response(episode, encoder.tokenizer)
            tokens = max(tokens, count(last))
            for _ in range(min(turns - 1, max(1, repeated))):
                episode.step(response)
                if episode.done:
                    break
                last = episode.observation
            longest = max(longest, count(last) + repeated * data.max_response_length)
            images = max(images, len(last.images))
    facts.append(f"prompts have up to {tokens:,} tokens in the first turn, {longest:,} later, and {images} image(s)")
    if longest > data.max_prompt_length:
        yield f"prompts have up to {longest:,} tokens, but data.max_prompt_length is {data.max_prompt_length:,}"
    if rollout.limit_images and images > rollout.limit_images:
        yield f"prompts have {images} images, but worker.rollout.limit_images is {rollout.limit_images}"
    needed = data.max_prompt_length + data.max_response_length
    limits = {"max_num_batched_tokens": rollout.max_num_batched_tokens, "max_model_len": rollout.max_model_len}
    for name, limit in limits.items():
        if limit is not None and limit < needed:
            yield f"worker.rollout.{name} must be at least {needed}, the longest prompt and response"
    games, option = [entry.stages[-1].game for entry in curriculum.entries], "vlmgym.validation.episodes"
    check_validation_size(games, section.states.validation_fraction, section.validation.episodes, option)


def invalid_response(episode: LiveEpisode, tokenizer: Any) -> str:
    """Return the response with the longest feedback, among unparsable ones and random actions."""
    game, state, rng = episode.setup.game, episode.episode.state, np.random.default_rng(0)
    quoted = "0123456789" * 4  # as much of an answer as feedback quotes; tokenizers do not merge digits
    actions = [game.format_actions([game.answer.sample(rng)]) for _ in range(16)]
    answers = [f"<answer>{answer}</answer>" for answer in ("", quoted, quoted[: game.answer.longest], *actions)]
    responses = ["", *answers, "".join(answers[:2])]
    return max(responses, key=lambda text: len(tokenizer.encode(score_response(game, state, text, rng).feedback)))


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


GIB = 2**30
ROLLOUT_WORKER_MEMORY = GIB
"""Approximate host memory in bytes that a rollout worker needs for torch, the model's processor and its episodes."""
REQUIREMENTS = Path(__file__).resolve().parents[3] / "training" / "requirements" / "easyr1.txt"
GPU_MEMORY = "import torch; print(*(torch.cuda.mem_get_info(gpu)[0] for gpu in range({})))"
SMALLER = "set LOW_MEMORY=1 or LORA=1, use more GPUS or a smaller MODEL"


def _installation(trainer: Any, section: Section) -> Iterator[str]:
    """Yield missing packages, GPUs and CPUs."""
    if missing := {"vllm", "flash_attn"}.difference(packages_distributions()):
        yield f"{' and '.join(sorted(missing))} not installed: run setup.sh --easyr1 on a machine with an NVIDIA GPU"
    if trainer.nnodes == 1 and (gpus := torch.cuda.device_count()) < trainer.n_gpus_per_node:
        yield f"trainer.n_gpus_per_node={trainer.n_gpus_per_node}, but this machine has {gpus}: set GPUS"
    if trainer.nnodes == 1 and "RAY_ADDRESS" not in os.environ:
        yield from check_cpus(trainer, section, os.cpu_count() or 1)


def check_cpus(trainer: Any, section: Section, available: float) -> Iterator[str]:
    """Yield a problem unless Ray has a CPU for each GPU and each rollout worker."""
    gpus = trainer.n_gpus_per_node * trainer.nnodes
    if section.rollout_workers + gpus > available:
        yield f"{gpus} GPUs and {section.rollout_workers} vlmgym.rollout_workers need a CPU each, Ray has {available:g}"


def check_machine(config: RunConfig, section: Section, facts: list[str]) -> Iterator[str]:
    """Yield problems with EasyR1, memory and disk, and append to `facts` how much memory the run needs.

    Raises:
        UsageError: The model does not exist or is invalid.
    """
    trainer = config.trainer
    origin = json.loads(distribution("verl").read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id", "")  # unknown for a wheel or a folder
    if commit not in REQUIREMENTS.read_text(encoding="utf-8"):
        yield f"the installed EasyR1 is not the commit of {REQUIREMENTS}: run bash setup.sh --easyr1"
    sizes = {name: model_size(part.model, name == "critic") for name, part in config.trained.items()}
    yield from check_heads(config.worker.actor.model, config.worker.rollout.tensor_parallel_size)
    host, update, checkpoint = estimate_memory(config, sizes)
    host += ROLLOUT_WORKER_MEMORY * section.rollout_workers / trainer.nnodes
    needed = f"{host / GIB:.1f} GiB of host memory, {update / GIB:.1f} GiB of each GPU, {checkpoint / GIB:.1f} GiB"
    facts.append(f"{sizes['actor'][0] / 1e9:.3g} billion parameters need at least {needed} per checkpoint")
    if host > (free := free_memory()):
        yield f"host memory: {host / GIB:.0f} GiB needed, {free / GIB:.0f} GiB free: {SMALLER}"
    yield from check_disk(config, checkpoint)
    yield from check_gpus(min(torch.cuda.device_count(), trainer.n_gpus_per_node), update)


def check_heads(model: Any, parallel: int) -> Iterator[str]:
    """Yield a problem unless vLLM can split the attention heads of the model among `parallel` GPUs."""
    config = AutoConfig.from_pretrained(model.model_path, trust_remote_code=model.trust_remote_code)
    text, vision = config.get_text_config().num_attention_heads, config.vision_config.num_heads
    if text % parallel or vision % parallel:
        heads = f"the {text} attention heads of the language model and the {vision} of the vision encoder"
        yield f"worker.rollout.tensor_parallel_size={parallel} must divide {heads}"


def check_gpus(gpus: int, needed: float) -> Iterator[str]:
    """Yield a problem for each GPU with less than `needed` bytes of free memory.

    A child process reads the memory, so that this process creates no CUDA context.
    """
    done = subprocess.run([sys.executable, "-c", GPU_MEMORY.format(gpus)], capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"the GPUs do not respond: {done.stderr.strip()}"
    for gpu, free in enumerate(map(int, done.stdout.split())):
        if needed > free:
            yield f"GPU {gpu}: an update needs {needed / GIB:.1f} GiB, {free / GIB:.1f} GiB are free: {SMALLER}"


def free_memory(cgroups: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> int:
    """Return the free host memory in bytes, within the limits of the container or Slurm job (cgroup 2)."""
    free = int(psutil.virtual_memory().available)
    lines = process.read_text().splitlines() if process.exists() else []
    path = cgroups / next((line[3:] for line in lines if line.startswith("0::")), "").lstrip("/")
    for group in (path, *path.parents):
        if (group / "memory.max").is_file() and (limit := (group / "memory.max").read_text().strip()) != "max":
            free = min(free, int(limit) - int((group / "memory.current").read_text()))
    return free


def check_disk(config: RunConfig, checkpoint: float) -> Iterator[str]:
    """Yield a problem unless the checkpoint folder is writable and has room for all checkpoints to be kept."""
    trainer, folder = config.trainer, Path(str(config.trainer.save_checkpoint_path))
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    saved = -(-(trainer.max_steps or 1) // trainer.save_freq) if trainer.save_freq > 0 else 1  # one at the end
    kept = min(saved, trainer.save_limit) if trainer.save_limit > 0 else saved
    needed = checkpoint * max(0, kept - len(list(folder.glob("global_step_*"))))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield f"trainer.save_checkpoint_path={folder} (OUT) cannot be created in {existing}"
    elif needed > (free := shutil.disk_usage(existing).free):
        need = f"{kept} checkpoints need {needed / GIB:.0f} GiB more"
        yield f"{need}, but {existing} has {free / GIB:.0f} GiB: lower trainer.save_limit, or choose another OUT"


NEWER = "{} was saved by transformers 5: convert a copy for EasyR1 with python -m vlmgym.training.transformers4 FOLDER"


def model_size(model: Any, critic: bool) -> tuple[int, int]:
    """Return the parameter counts of a model (for a critic, without its head) and of its vision tower.

    Raises:
        UsageError: The model cannot be created, or has no vision tower.
    """
    check_model(model.model_path)
    try:
        config = AutoConfig.from_pretrained(model.model_path, trust_remote_code=model.trust_remote_code)
        if saved_by_transformers5(config.to_dict()):
            raise UsageError(NEWER.format(model.model_path))
        with torch.device("meta"):
            whole = AutoModelForImageTextToText.from_config(config)
        counted, vision = whole.model if critic else whole, whole.model.visual
    except BROKEN as error:
        raise UsageError(f"transformers cannot create the model {model.model_path}: {error_text(error)}") from None
    return counted.num_parameters(), sum(weights.numel() for weights in vision.parameters())


def estimate_memory(config: RunConfig, sizes: dict[str, tuple[int, int]]) -> tuple[float, float, float]:
    """Add up the memory of weights, gradients and optimizer states; `sizes` has the `model_size` of each trained part.

    Returns:
        Lower bounds in bytes: host memory per machine, memory per GPU during an update, and size of a checkpoint.
    """
    trainer, rollout, ref, actor = config.trainer, config.worker.rollout, config.worker.ref, sizes["actor"][0]
    gpus = trainer.n_gpus_per_node * trainer.nnodes

    def itemsize(dtype: str) -> int:
        try:
            return int(PrecisionType.to_dtype(dtype).itemsize)
        except RuntimeError:
            raise UsageError(f"a data type must be bf16, fp16 or fp32, got {dtype}") from None

    host = update = checkpoint = 0.0
    for name, part in config.trained.items():
        (parameters, vision), lora = sizes[name], name == "actor" and part.model.lora.rank > 0
        item = 2 if lora else itemsize(part.fsdp.torch_dtype or "fp32")
        trained = 0 if lora or trainer.val_only else parameters - vision * part.model.freeze_vision_tower
        weights, gradients = item * parameters, item * trained
        moments = trained * (6 if part.optim.strategy == "adamw_bf16" else 2 * item)  # 6: with rounding errors
        if part.fsdp.enable_cpu_offload:
            host += weights + gradients + moments
        else:
            host += weights * part.offload.offload_params + moments * part.offload.offload_optimizer
            update = max(update, weights + gradients + moments)  # actor and critic are updated in turn
        checkpoint += (not trainer.val_only) * (weights + moments * (not trainer.save_model_only))
    unused = config.algorithm.disable_kl or config.worker.actor.model.lora.rank > 0
    if not unused and (ref.fsdp.enable_cpu_offload or ref.offload.offload_params):
        host += itemsize(ref.fsdp.torch_dtype or "bf16") * actor
    engine = itemsize(rollout.dtype or "bf16") * actor / rollout.tensor_parallel_size  # vLLM's weights while it sleeps
    return host / trainer.nnodes + engine * trainer.n_gpus_per_node, update / gpus, checkpoint


FIXED = {"trainer", "curriculum", "reward", "prompts", "max_turns", "temperature", "top_p", "max_tokens"}
"""Fields that must not change when a run is resumed."""


def trained_record(
    config: RunConfig, section: Section, curriculum: Curriculum, progress: Progress, step: int, chat_template: str
) -> TrainedRecord:
    """Describe the games and settings that the checkpoint of a step was trained with."""
    rollout = config.worker.rollout
    return make_trained_record(
        curriculum,
        progress,
        section.play,
        section.states,
        section.reward,
        trainer=f"easyr1 {config.algorithm.adv_estimator}",
        step=step,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        max_tokens=config.data.max_response_length,
        chat_template=chat_template,
    )


def changed_settings(checkpoint: Path, config: RunConfig, section: Section, curriculum: Curriculum) -> list[str]:
    """List changes since a checkpoint (`max_turns was 1 and is 8`); raise `UsageError` if its record is invalid."""
    if not (checkpoint / TRAINED).exists():
        return []
    after = trained_record(config, section, curriculum, curriculum.begin(), 0, "")
    old, new = (record.model_dump(mode="json", include=FIXED) for record in (TrainedRecord.read(checkpoint), after))
    return [str(change) for change in changes(old, new)]
