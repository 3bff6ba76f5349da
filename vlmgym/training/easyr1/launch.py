"""Start Ray and build the trainer."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import ray
from huggingface_hub import snapshot_download
from verl.single_controller.ray import RayWorkerGroup
from verl.trainer.ray_trainer import ResourcePoolManager, Role

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text
from vlmgym.training.easyr1 import patches
from vlmgym.training.easyr1.config import RunConfig
from vlmgym.training.easyr1.machine import check_cpus
from vlmgym.training.easyr1.prompt_stream import PromptStream
from vlmgym.training.easyr1.prompts import PromptEncoder, load_processors
from vlmgym.training.easyr1.section import Section
from vlmgym.training.easyr1.trainer import VlmgymTrainer
from vlmgym.training.easyr1.worker_pool import RolloutWorkerPool

POOL = "gpus"
VARIABLES = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "VLLM_LOGGING_LEVEL": "WARN",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
"""Environment variables set by EasyR1's entry point (trainer/main.py)."""


def start_ray(**options: Any) -> None:
    """Connect to the Ray cluster at RAY_ADDRESS, or start a local one.

    Raises:
        UsageError: The cluster at RAY_ADDRESS does not respond.
    """
    runtime = {"env_vars": VARIABLES, **options.pop("runtime_env", {})}
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(runtime_env=runtime, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if not address:
            raise
        raise UsageError(f"cannot connect to the Ray cluster at RAY_ADDRESS={address}: {error_text(error)}") from None


def fetch_model(name: str) -> None:
    """Download a model before the workers start; raise `UsageError` if the Hub does not provide it.

    Otherwise, one worker would download it while the others wait, and NCCL would abort their wait after ten minutes
    (fsdp_workers.py).
    """
    if Path(name).is_dir():
        return
    try:
        snapshot_download(name)
    except (OSError, ValueError) as error:  # ValueError: not a valid repository name
        raise UsageError(f"cannot download the model {name} from the Hub: {error_text(error)}") from None


def build_trainer(config: RunConfig, worker: type[Any]) -> VlmgymTrainer:
    """Build the trainer for a configuration; raise `UsageError` for an invalid setting or model, or too few CPUs."""
    section = Section.read(config.vlmgym)
    for problem in check_cpus(config, section, ray.cluster_resources().get("CPU", 0)):
        raise UsageError(problem)
    curriculum = section.make_curriculum()
    model, seed = config.worker.actor.model, config.data.seed
    tokenizer, processor = load_processors(model, config.data)
    for part in config.trained.values():
        fetch_model(part.model.model_path)
    os.environ.setdefault("TENSORBOARD_DIR", str(Path(str(config.trainer.save_checkpoint_path)) / "tensorboard"))
    remote = ray.remote(worker)
    pool = ResourcePoolManager(
        {POOL: [config.trainer.n_gpus_per_node] * config.trainer.nnodes},
        {Role.ActorRolloutRef: POOL, Role.Critic: POOL},
    )
    trainer = VlmgymTrainer(
        section=section,
        curriculum=curriculum,
        workers=RolloutWorkerPool(
            section, PromptEncoder(tokenizer, processor, config.data), seed, str(model.model_path)
        ),
        config=config,
        tokenizer=tokenizer,
        processor=processor,
        train_dataloader=PromptStream(curriculum, seed, config.data.rollout_batch_size // section.play.max_turns),
        val_dataloader=None,
        role_worker_mapping={Role.ActorRolloutRef: remote, Role.Critic: remote},
        resource_pool_manager=pool,
        ray_worker_group_cls=RayWorkerGroup,
    )
    proxy = weakref.proxy(trainer)  # loggers finish when the trainer is freed (utils/logger/logger.py)
    patches.install(section.step_weight, lambda: proxy.bootstrap_values())
    return trainer
