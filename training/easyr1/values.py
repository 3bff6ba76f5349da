"""Single values of a configuration that EasyR1 refuses only when models are loaded, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from verl.utils.torch_dtypes import BFLOAT_LIST, FLOAT_LIST, HALF_LIST

from training.easyr1.config import RunConfig

PARTS = ("worker.actor", "worker.critic")
SIZES = (
    "global_batch_size",
    "micro_batch_size_per_device_for_experience",
    "micro_batch_size_per_device_for_update",
    "ppo_epochs",
    "ulysses_size",
)
COUNTS = (
    *("data.rollout_batch_size", "data.max_prompt_length", "data.max_response_length"),
    *("data.min_pixels", "data.max_pixels"),
    *(f"{part}.{size}" for part in PARTS for size in SIZES),
    *("worker.rollout.n", "worker.rollout.tensor_parallel_size"),
    *("trainer.nnodes", "trainer.n_gpus_per_node", "trainer.max_steps"),
)
LEAST = {**dict.fromkeys(COUNTS, 1), "data.seed": 0, **{f"{part}.optim.lr": 0 for part in PARTS}}
SHARES = ("worker.rollout.gpu_memory_utilization", "worker.rollout.top_p")
LORA_RANKS = (0, 8, 16, 32, 64, 128, 256, 320, 512)
"""Without adapters, and with those that vLLM 0.11 takes (config/lora.py)."""
PRECISIONS = (*BFLOAT_LIST, *FLOAT_LIST, *HALF_LIST)
CHOICES = {
    "algorithm.kl_penalty": ("kl", "abs", "mse", "low_var_kl", "full"),
    "algorithm.kl_type": ("fixed", "adaptive"),
    "worker.actor.model.lora.rank": LORA_RANKS,
    "worker.rollout.dtype": PRECISIONS,
    "worker.ref.fsdp.torch_dtype": PRECISIONS,
    **{f"{part}.fsdp.torch_dtype": PRECISIONS for part in PARTS},
    **{f"{part}.optim.strategy": ("adamw", "adamw_bf16") for part in PARTS},
    **{f"{part}.optim.lr_scheduler_type": ("constant", "cosine") for part in PARTS},
}
UNREAD = {
    "data.train_files": "vlmgym.games",
    "data.val_files": "vlmgym.validation",
    "data.val_batch_size": "vlmgym.validation",
    "data.format_prompt": "the setting prompt of a game",
    "data.image_dir": "vlmgym.games",
    "worker.reward": "vlmgym.reward",
    "worker.rollout.val_override_config": "vlmgym.validation",
    "trainer.total_epochs": "trainer.max_steps",
    "trainer.val_generations_to_log": "the files validation_*.jsonl",
}
"""Settings of EasyR1 without effect here, and what stands in their place."""


def wrong_values(config: RunConfig) -> Iterator[str]:
    """What to change; values that may be left out are not looked at where they are."""
    for name, least in LEAST.items():
        value = attrgetter(name)(config)
        if value is not None and not value >= least:
            yield f"{name} is at least {least}, not {value}"
    for name in SHARES:
        value = attrgetter(name)(config)
        if not 0 < value <= 1:
            yield f"{name} is above 0 and at most 1, not {value}"
    if not config.worker.rollout.temperature > 0:
        told = f"worker.rollout.temperature is above 0, not {config.worker.rollout.temperature}"
        yield f"{told}: without chance there is nothing to learn from"
    for name, accepted in CHOICES.items():
        value = attrgetter(name)(config)
        if value is not None and value not in accepted:
            yield f"{name} is one of {', '.join(map(str, accepted))}, not {value}"
    untouched = RunConfig()
    for name, instead in UNREAD.items():
        if attrgetter(name)(config) != attrgetter(name)(untouched):
            yield f"{name} has no effect here: leave it out; in its place there is {instead}"
