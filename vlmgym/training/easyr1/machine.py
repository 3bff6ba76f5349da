"""Preflight checks of the machine: packages, GPUs, CPUs, and lower bounds on memory and disk space."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoConfig, AutoModelForImageTextToText
from verl.utils.torch_dtypes import PrecisionType

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text
from vlmgym.training.easyr1.config import RunConfig
from vlmgym.training.easyr1.prompts import BROKEN, check_model
from vlmgym.training.easyr1.section import Section

GIB = 2**30
ROLLOUT_WORKER_MEMORY = GIB
"""Approximate host memory in bytes that a rollout worker needs for torch, the model's processor and its episodes."""
REQUIREMENTS = Path(__file__).resolve().parents[3] / "training" / "requirements" / "easyr1.txt"
GPU_MEMORY = "import torch; print(*(torch.cuda.mem_get_info(gpu)[0] for gpu in range({})))"
SMALLER = "set LOW_MEMORY=1 or LORA=1, use more GPUS or a smaller MODEL"


def check_machine(config: RunConfig, section: Section, facts: list[str]) -> Iterator[str]:
    """Yield problems with this machine, and append to `facts` how much memory the run needs.

    Raises:
        UsageError: The model does not exist or is invalid.
    """
    trainer, gpus = config.trainer, torch.cuda.device_count()
    if missing := {"vllm", "flash_attn"}.difference(packages_distributions()):
        yield f"{' and '.join(sorted(missing))} not installed: run setup.sh --train on a machine with an NVIDIA GPU"
    origin = json.loads(distribution("verl").read_text("direct_url.json") or "{}")
    if str(origin.get("vcs_info", {}).get("commit_id")) not in REQUIREMENTS.read_text(encoding="utf-8"):
        yield f"the installed EasyR1 is not the commit of {REQUIREMENTS}: run bash setup.sh --train"
    if trainer.nnodes == 1 and gpus < trainer.n_gpus_per_node:
        yield f"trainer.n_gpus_per_node={trainer.n_gpus_per_node}, but this machine has {gpus}: set GPUS"
    if trainer.nnodes == 1 and "RAY_ADDRESS" not in os.environ:
        yield from check_cpus(config, section, os.cpu_count() or 1)
    sizes = {name: model_size(part.model, name == "critic") for name, part in config.trained.items()}
    host, update, checkpoint = estimate_memory(config, sizes)
    host += ROLLOUT_WORKER_MEMORY * section.rollout_workers / trainer.nnodes
    needed = f"{host / GIB:.1f} GiB of host memory, {update / GIB:.1f} GiB of each GPU, {checkpoint / GIB:.1f} GiB"
    facts.append(f"{sizes['actor'][0] / 1e9:.3g} billion parameters need at least {needed} per checkpoint")
    if host > (free := free_memory()):
        yield f"host memory: {host / GIB:.0f} GiB needed, {free / GIB:.0f} GiB free: {SMALLER}"
    yield from check_disk(config, checkpoint)
    yield from check_gpus(min(gpus, trainer.n_gpus_per_node), update)


def check_cpus(config: RunConfig, section: Section, available: float) -> Iterator[str]:
    """Yield a problem unless Ray has a CPU for each GPU and each rollout worker."""
    gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if section.rollout_workers + gpus > available:
        yield f"{gpus} GPUs and {section.rollout_workers} vlmgym.rollout_workers need a CPU each, Ray has {available:g}"


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


def model_size(model: Any, critic: bool) -> tuple[int, int]:
    """Return the parameter counts of a model (for a critic, without its head) and of its vision tower.

    Raises:
        UsageError: The model cannot be created, or has no vision tower.
    """
    check_model(model.model_path)
    try:
        config = AutoConfig.from_pretrained(model.model_path, trust_remote_code=model.trust_remote_code)
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
