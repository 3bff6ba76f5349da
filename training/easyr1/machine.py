"""Preflight checks of the machine: packages, GPUs, processors, memory and disk space."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from training.easyr1.config import RunConfig
from training.easyr1.memory import Memory, estimate_memory, model_size
from training.easyr1.section import Section
from vlmgym.errors import UsageError

GIB = 2**30
EASYR1 = Path(__file__).resolve().parents[1] / "requirements" / "easyr1.txt"
GPU_MEMORY = "import json, torch; print(json.dumps([torch.cuda.mem_get_info(gpu) for gpu in range({})]))"
SMALLER = "set LOW_MEMORY=1 or LORA=1, use more GPUS or a smaller MODEL"


def check_machine(config: RunConfig, section: Section, facts: list[str]) -> Iterator[str]:
    """Check what a run needs of this machine, and add what it takes to the facts.

    Raises:
        UsageError: The model does not exist, or the GPUs do not respond.
    """
    trainer, gpus = config.trainer, torch.cuda.device_count()
    installed = importlib.metadata.packages_distributions()
    if missing := [name for name in ("vllm", "flash_attn") if name not in installed]:
        yield f"{' and '.join(missing)} not installed: run bash setup.sh --train on a machine with an NVIDIA GPU"
    origin = json.loads(importlib.metadata.distribution("verl").read_text("direct_url.json") or "{}")
    if str(origin.get("vcs_info", {}).get("commit_id")) not in EASYR1.read_text(encoding="utf-8"):
        yield f"the installed EasyR1 is not the commit of {EASYR1}: run bash setup.sh --train"
    if trainer.nnodes == 1 and gpus < trainer.n_gpus_per_node:
        yield f"trainer.n_gpus_per_node={trainer.n_gpus_per_node}, but this machine has {gpus}: set GPUS"
    if trainer.nnodes == 1 and "RAY_ADDRESS" not in os.environ:
        yield from check_processors(config, section, os.cpu_count() or 1)
    sizes = {name: model_size(part.model, name == "critic") for name, part in config.trained.items()}
    memory, free, parallel = estimate_memory(config, sizes), free_memory(), config.worker.rollout.tensor_parallel_size
    takes = ("of host memory", "of each GPU in an update", "beside vLLM", "for vLLM's weights", "for a checkpoint")
    sums = ", ".join(f"{number / GIB:.1f} GiB {name}" for name, number in zip(takes, memory))
    facts.append(f"{sizes['actor'].parameters / 1e9:.3g} billion parameters take at least: {sums}")
    if memory.host > free:
        yield f"host memory: {memory.host / GIB:.0f} GiB needed, {free / GIB:.0f} GiB free: {SMALLER}"
    heads, shared = sizes["actor"].heads, sizes["actor"].kv_heads
    if heads % parallel or (shared % parallel and parallel % shared):
        yield f"worker.rollout.tensor_parallel_size={parallel} cannot split {heads} heads, {shared} key-value heads"
    for name, part in config.trained.items():
        if sizes[name].kv_heads % part.ulysses_size:
            yield f"worker.{name}.ulysses_size={part.ulysses_size} cannot split {sizes[name].kv_heads} key-value heads"
    yield from check_disk(config, memory.checkpoint)
    yield from check_gpus(config, memory, gpu_memory(min(gpus, trainer.n_gpus_per_node)))


def check_processors(config: RunConfig, section: Section, there: float) -> Iterator[str]:
    """Check that Ray has a processor for each GPU and player, because it would wait for more forever."""
    gpus = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if section.players + gpus > there:
        yield f"Ray needs {gpus} processors for GPUs and {section.players} for vlmgym.players, but has {there:g}"


def gpu_memory(gpus: int) -> list[tuple[int, int]]:
    """Ask for free and total bytes of each GPU in a child process, so that this one creates no CUDA context.

    Raises:
        UsageError: The GPUs do not respond.
    """
    done = subprocess.run([sys.executable, "-c", GPU_MEMORY.format(gpus)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"the GPUs do not respond: {done.stderr.strip()}")
    return [(free, total) for free, total in json.loads(done.stdout)]


def check_gpus(config: RunConfig, memory: Memory, gpus: list[tuple[int, int]]) -> Iterator[str]:
    """Compare the estimates with the free and total bytes of each GPU."""
    name, utilization = "worker.rollout.gpu_memory_utilization", config.worker.rollout.gpu_memory_utilization
    for gpu, (free, total) in enumerate(gpus):
        share, left = utilization * total, max(0.0, free - memory.idle)
        if memory.engine >= share:
            yield f"GPU {gpu}: vLLM's weights take {memory.engine / GIB:.1f} GiB, {name} allows {share / GIB:.1f} GiB"
        if share > left:
            room = f"{left / GIB:.1f} of {total / GIB:.1f} GiB are free"
            yield f"GPU {gpu}: vLLM takes {share / GIB:.1f} GiB, {room}: lower {name} or offload more"
        if memory.update > free:
            yield f"GPU {gpu}: an update takes {memory.update / GIB:.1f} GiB, {free / GIB:.1f} GiB are free: {SMALLER}"


def free_memory(groups: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> int:
    """Count the free bytes of host memory, also within the limits of a container or Slurm job (cgroup 2)."""
    free = int(psutil.virtual_memory().available)
    lines = mine.read_text().splitlines() if mine.exists() else []
    path = groups / next((line[3:] for line in lines if line.startswith("0::")), "").lstrip("/")
    for group in (path, *path.parents):
        if (group / "memory.max").is_file() and (limit := (group / "memory.max").read_text().strip()) != "max":
            free = min(free, int(limit) - int((group / "memory.current").read_text()))
    return free


def check_disk(config: RunConfig, checkpoint: float) -> Iterator[str]:
    """Check that there is room for the checkpoints that are kept."""
    trainer, folder = config.trainer, Path(str(config.trainer.save_checkpoint_path))
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    saved = -(-(trainer.max_steps or 1) // trainer.save_freq) if trainer.save_freq > 0 else 1  # one at the end
    kept = min(saved, trainer.save_limit) if trainer.save_limit > 0 else saved
    needed = checkpoint * max(0, kept - len(list(folder.glob("global_step_*"))))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield f"trainer.save_checkpoint_path={folder} (OUT) cannot be created in {existing}"
    elif needed > (free := shutil.disk_usage(existing).free):
        sizes = f"{kept} checkpoints need {needed / GIB:.0f} GiB more, but {existing} has {free / GIB:.0f} GiB"
        yield f"{sizes}: lower trainer.save_limit, or choose another OUT"
