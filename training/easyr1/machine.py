"""What a run needs of the machine that it starts on: packages, GPUs, host memory, and a disk for checkpoints."""

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
from training.easyr1.section import Section
from training.easyr1.sizes import GpuBytes, Parameters, checkpoint_bytes, count_parameters, gpu_bytes, host_bytes
from vlmgym.errors import UsageError

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements" / "easyr1.txt"
PACKAGES = {"vllm": "vLLM", "flash_attn": "flash-attn"}
"""Distributions, and what they are called."""
LOGGERS = ("mlflow", "swanlab", "tensorboard", "wandb")
"""Loggers of EasyR1 that are packages of that name; it looks for them only after the models are loaded."""
GIB = 2**30
MEMORY_OF_GPUS = "import json, torch; print(json.dumps([torch.cuda.mem_get_info(gpu) for gpu in range({})]))"


def look_at_machine(config: RunConfig) -> tuple[list[str], list[str]]:
    """What the machine lacks, and what to change; and what the run takes of it.

    Args:
        config: Of `read_config`.
    """
    try:
        parameters = count_parameters(config)
    except UsageError as error:
        problems = [*_packages(config), *_gpus(config, None), *_processors(config), str(error), *_disk(config, 0)]
        return problems, ["memory and the disk for checkpoints are not added up, as the model does not load"]
    memory, checkpoint = host_bytes(config, parameters), checkpoint_bytes(config, parameters)
    needed = gpu_bytes(config, parameters)
    facts = [
        f"the model has {parameters.whole / 1e9:.3g} billion parameters: at least {memory / GIB:.0f} GiB of host "
        f"memory, and {checkpoint / GIB:.0f} GiB of disk for a checkpoint",
        f"on each GPU it is at least {needed.update / GIB:.0f} GiB while it is updated, without activations, and "
        f"{needed.engine / GIB:.0f} GiB of vLLM's share while it generates",
    ]
    return [
        *_packages(config),
        *_heads(config, parameters),
        *_gpus(config, needed),
        *_processors(config),
        *_host_memory(memory),
        *_disk(config, checkpoint),
    ], facts


def is_installed(package: str) -> bool:
    """Whether a distribution is installed; a stand-in for its modules is none."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def gpu_memory(gpus: int) -> list[tuple[int, int]]:
    """Free bytes and all bytes of each GPU.

    A process of its own asks: who asks CUDA takes some hundred MiB of each GPU until it ends, and this one trains.

    Args:
        gpus: How many, from the first on.

    Raises:
        UsageError: They do not answer.
    """
    command = [sys.executable, "-c", MEMORY_OF_GPUS.format(gpus)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.split("\n\n")[0].strip().splitlines()  # CUDA's advice follows after an empty line
        raise UsageError(f"the GPUs do not answer: {lines[-1] if lines else done.returncode}")
    return [(free, whole) for free, whole in json.loads(done.stdout)]


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


def _packages(config: RunConfig) -> Iterator[str]:
    if missing := [name for package, name in PACKAGES.items() if not is_installed(package)]:
        yield f"this Python has no {' and no '.join(missing)}: run bash setup.sh --train on a machine with NVIDIA GPUs"
    for logger in config.trainer.logger:
        if logger in LOGGERS and not is_installed(logger):
            yield f"trainer.logger names {logger}, which is not installed: .venv-train/bin/pip install {logger}"
    if (installed := easyr1_commit()) != (wanted := wanted_commit()):
        found = f"at commit {installed}" if installed else "otherwise than from git"
        yield f"EasyR1 is installed {found}, and this was written for commit {wanted}: run bash setup.sh --train"


def _heads(config: RunConfig, parameters: Parameters) -> Iterator[str]:
    """Whether GPUs that share a layer get as many attention heads each."""
    size, (heads, shared) = config.worker.rollout.tensor_parallel_size, parameters.heads
    if heads % size or (shared % size and size % shared):  # as vLLM asserts (model_executor/models/qwen2.py)
        told = f"the model's {heads} attention heads, {shared} of keys and values"
        yield f"worker.rollout.tensor_parallel_size={size} does not share out {told}"
    for name, part in config.trained.items():
        _, shared = parameters.heads if name == "actor" else parameters.critic_heads
        if shared % part.ulysses_size:  # each GPU gets some of them (models/transformers/flash_attention_utils.py:98)
            told = f"the {shared} heads of keys and values of its model"
            yield f"worker.{name}.ulysses_size={part.ulysses_size} does not divide {told}"


def _gpus(config: RunConfig, needed: GpuBytes | None) -> Iterator[str]:
    wanted, there = config.trainer.n_gpus_per_node, torch.cuda.device_count()
    if config.trainer.nnodes == 1 and there < wanted:
        has = f"{there} GPU(s) with CUDA: set GPUS={there}" if there else "no GPU with CUDA"
        yield f"trainer.n_gpus_per_node={wanted}, and this machine has {has}"
    try:
        memory = gpu_memory(min(there, wanted)) if there else []
    except UsageError as error:
        yield str(error)
        return
    for gpu, (free, whole) in enumerate(memory):
        if free < 0.9 * whole:
            yield f"GPU {gpu} has {free / GIB:.0f} of {whole / GIB:.0f} GiB free: another program uses it"
    if memory and needed:
        yield from _gpu_room(config, needed, *min(memory))


def _gpu_room(config: RunConfig, needed: GpuBytes, free: int, whole: int) -> Iterator[str]:
    """Whether vLLM starts, which looks for the whole of its share (vLLM 0.11, v1/worker/gpu_worker.py), and a step."""
    rollout = config.worker.rollout
    share, left = rollout.gpu_memory_utilization * whole, max(0.0, free - needed.beside)
    setting = f"worker.rollout.gpu_memory_utilization={rollout.gpu_memory_utilization}"
    if needed.engine >= share:
        yield (
            f"vLLM's weights are {needed.engine / GIB:.1f} GiB on each GPU, and {setting} gives it {share / GIB:.1f}: "
            "raise it, or worker.rollout.tensor_parallel_size"
        )
    if share > left:
        yield (
            f"vLLM takes {share / GIB:.1f} GiB of each GPU by {setting}, and {left / GIB:.1f} are left to it: lower "
            "it, or offload more (worker.actor.offload)"
        )
    if needed.update > free:
        yield (
            f"at least {needed.update / GIB:.1f} GiB of each GPU are needed while the model is updated, and "
            f"{free / GIB:.1f} are free: set LOW_MEMORY=1 or LORA=1, take more GPUS, or a smaller MODEL"
        )


def _processors(config: RunConfig) -> Iterator[str]:
    alone = config.trainer.nnodes == 1 and "RAY_ADDRESS" not in os.environ
    if alone and (lack := lack_of_processors(config, os.cpu_count() or 1)):
        yield lack


def lack_of_processors(config: RunConfig, there: float) -> str | None:
    """What to change if Ray has too few processors, for which it would wait without end or word; None: it has enough.

    Args:
        config: Of `read_config`.
        there: How many it has.
    """
    players, gpus = Section.read(config.vlmgym).players, config.trainer.n_gpus_per_node * config.trainer.nnodes
    if players + gpus <= there:
        return None
    fewer = f"set vlmgym.players={int(there) - gpus}" if there >= gpus else "give it more"
    return f"Ray takes a processor for each of {gpus} GPUs and {players} players, and has {there:g}: {fewer}"


def free_memory(groups: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of host memory that are left to this process: by the machine, and by the limits of a container or a job.

    Args:
        groups: Where Linux shows its control groups, version 2.
        mine: The file that names that of this process.
    """
    free = int(psutil.virtual_memory().available)
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        return free  # no Linux
    path = groups / next((line[3:] for line in lines if line.startswith("0::")), "").lstrip("/")
    for group in (path, *path.parents):
        try:
            limit, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        except OSError:
            continue  # no such group, as seen from a container
        if limit.isdigit():
            free = min(free, int(limit) - int(used))
    return free


def _host_memory(needed: float) -> Iterator[str]:
    free = free_memory()
    if needed > free:
        yield (
            f"at least {needed / GIB:.0f} GiB of host memory are needed for what is offloaded, and {free / GIB:.0f} "
            "are free: set LOW_MEMORY=1 or LORA=1, take a smaller MODEL, or offload less (worker.actor.offload)"
        )


def _disk(config: RunConfig, checkpoint: float) -> Iterator[str]:
    """Checkpoints are on the disk until newer ones are written: as many as are kept, less those that are there."""
    trainer, folder = config.trainer, Path(str(config.trainer.save_checkpoint_path))
    there = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # which raises nothing
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield f"trainer.save_checkpoint_path={folder} (OUT) cannot be made: {there} is no folder that can be written"
    else:
        saved = -(-(trainer.max_steps or 1) // trainer.save_freq) if trainer.save_freq > 0 else 1  # at the end
        kept = min(saved, trainer.save_limit) if trainer.save_limit > 0 else saved
        needed = checkpoint * max(0, kept - len(list(folder.glob("global_step_*"))))
        free = shutil.disk_usage(there).free
        if needed > free:
            yield (
                f"{kept} checkpoints need {needed / GIB:.0f} GiB more on the disk of {there}, and {free / GIB:.0f} are "
                "free: name another OUT, keep fewer (trainer.save_limit), or set trainer.save_model_only=true, "
                "from which no run goes on"
            )
