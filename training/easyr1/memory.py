"""Lower bounds of the memory and disk space that a run takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForImageTextToText
from verl.utils.torch_dtypes import PrecisionType

from training.easyr1.config import RunConfig
from training.easyr1.prompts import BROKEN, check_model
from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text


class ModelSize(NamedTuple):
    """Numbers of parameters, of those in the vision tower, and of attention and key-value heads."""

    parameters: int
    vision: int
    heads: int
    kv_heads: int


class Memory(NamedTuple):
    """Lower bounds in bytes: host memory, a GPU in an update and beside vLLM, vLLM's weights, a checkpoint."""

    host: float
    update: float
    idle: float
    engine: float
    checkpoint: float


def model_size(model: Any, critic: bool = False) -> ModelSize:
    """Count the parameters of a model, or of a critic without its head, from its config.json.

    Raises:
        UsageError: The model does not exist or is not a vision-language model.
    """
    check_model(model.model_path)
    try:
        config = AutoConfig.from_pretrained(model.model_path, trust_remote_code=model.trust_remote_code)
        with torch.device("meta"):
            whole = AutoModelForImageTextToText.from_config(config)
        body, text = getattr(whole, "model", whole), config.get_text_config()
    except BROKEN as error:
        raise UsageError(f"transformers cannot create the model {model.model_path}: {error_text(error)}") from None
    parameters = sum(weights.numel() for weights in (body if critic else whole).parameters())
    vision = sum(weights.numel() for weights in body.visual.parameters()) if hasattr(body, "visual") else 0
    return ModelSize(parameters, vision, text.num_attention_heads, text.num_key_value_heads)


def estimate_memory(config: RunConfig, sizes: dict[str, ModelSize]) -> Memory:
    """Add up weights, gradients and optimizer states, from the sizes of the trained parts by name.

    Raises:
        UsageError: EasyR1 does not know a data type.
    """
    trainer, rollout, ref, whole = config.trainer, config.worker.rollout, config.worker.ref, sizes["actor"].parameters
    gpus = trainer.n_gpus_per_node * trainer.nnodes

    def itemsize(dtype: str) -> int:
        try:
            return int(PrecisionType.to_dtype(dtype).itemsize)
        except RuntimeError:
            raise UsageError(f"a data type must be bf16, fp16 or fp32, got {dtype}") from None

    host = update = idle = checkpoint = 0.0
    for name, part in config.trained.items():
        size, on_host, lora = sizes[name], part.fsdp.enable_cpu_offload, name == "actor" and part.model.lora.rank > 0
        item = 2 if lora else itemsize(part.fsdp.torch_dtype or "fp32")
        learned = 0 if lora or trainer.val_only else size.parameters - size.vision * part.model.freeze_vision_tower
        weights, gradient = item * size.parameters, item * learned
        moments = learned * (6 if part.optim.strategy == "adamw_bf16" else 2 * item)  # 6: with a rounding error
        moved = weights * part.offload.offload_params + moments * part.offload.offload_optimizer
        host += weights + gradient + moments if on_host else moved
        if not on_host:
            update = max(update, weights + gradient + moments)  # the actor and the critic are updated in turns
            idle += weights * (not part.offload.offload_params)
        checkpoint += (not trainer.val_only) * (weights + moments * (not trainer.save_model_only))
    if not (config.algorithm.disable_kl or config.worker.actor.model.lora.rank):
        reference = itemsize(ref.fsdp.torch_dtype or "bf16") * whole
        offloaded = ref.fsdp.enable_cpu_offload or ref.offload.offload_params
        host += reference * offloaded
        idle += reference * (not offloaded)
    engine = itemsize(rollout.dtype or "bf16") * whole / rollout.tensor_parallel_size
    host = host / trainer.nnodes + engine * trainer.n_gpus_per_node  # vLLM's weights are there while it sleeps
    return Memory(host, update / gpus, idle / gpus, engine, checkpoint)
