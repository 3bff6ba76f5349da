"""How many bytes a run holds, as lower bounds read off EasyR1: on the host, on each GPU, and in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.config import ActorConfig, ModelConfig

from training.easyr1.config import RunConfig
from training.easyr1.prompts import BROKEN, check_model
from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import reason


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many parameters a model has.

    Attributes:
        whole: All of them.
        eye: Those of its vision tower, which may be frozen.
        critic: Those of the critic, but for its head; 0: there is none.
        critic_eye: Those of the critic's vision tower.
        heads: Attention heads of its language model, and of these, those of keys and values.
        critic_heads: The critic's.
    """

    whole: int
    eye: int
    critic: int
    critic_eye: int
    heads: tuple[int, int]
    critic_heads: tuple[int, int]


@dataclass(frozen=True, slots=True)
class GpuBytes:
    """What is on each GPU; activations, layers that are gathered from other GPUs, and buffers come on top.

    Attributes:
        update: While an optimizer takes a step; vLLM sleeps then.
        beside: What is there when vLLM starts.
        engine: Weights of vLLM, while it generates.
    """

    update: float
    beside: float
    engine: float


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes of a model that is trained, over all GPUs."""

    weights: int
    gradient: int
    moments: int


def count_parameters(config: RunConfig) -> Parameters:
    """Parameters of the models of a run, from their configurations alone.

    Raises:
        UsageError: There is no such model, or transformers makes none of pictures and text from that.
    """
    actor, critic = config.worker.actor.model, config.worker.critic.model
    made = _make_model(actor)
    whole, _, eye = _count_model(made)
    if "critic" not in config.trained:
        return Parameters(whole, eye, 0, 0, _count_heads(made), (0, 0))
    judging = _make_model(critic)
    return Parameters(whole, eye, *_count_model(judging)[1:], _count_heads(made), _count_heads(judging))


def _make_model(model: ModelConfig) -> Any:
    """A model without weights."""
    check_model(model.model_path)
    try:
        config = AutoConfig.from_pretrained(model.model_path, trust_remote_code=model.trust_remote_code)
        with torch.device("meta"):
            return AutoModelForImageTextToText.from_config(config)
    except BROKEN as error:
        raise UsageError(
            f"transformers makes no model of pictures and text from the config.json of {model.model_path}: "
            f"{reason(error)}"
        ) from None


def _count_heads(made: Any) -> tuple[int, int]:
    config = made.config.get_text_config()
    return config.num_attention_heads, config.num_key_value_heads


def _count_model(made: Any) -> tuple[int, int, int]:
    """All parameters; without an output layer that shares no weights with others, as a critic has none; the eye's."""
    inner = getattr(made, "model", made)
    eye = _count(inner.visual) if hasattr(inner, "visual") else 0  # as fsdp_workers.py:265 freezes it
    return _count(made), _count(inner), eye


def host_bytes(config: RunConfig, parameters: Parameters) -> float:
    """Host memory of each machine: what is offloaded while it is not used.

    What is loaded, sent and pinned comes on top.
    """
    total: float = 0
    for part, held in _trained(config, parameters):
        if part.fsdp.enable_cpu_offload:
            total += held.weights + held.gradient + held.moments
        else:
            total += held.weights * part.offload.offload_params + held.moments * part.offload.offload_optimizer
    reference = config.worker.ref
    if reference.fsdp.enable_cpu_offload or reference.offload.offload_params:
        total += _reference(config, parameters)
    # vLLM's weights are there while it sleeps (vllm_rollout_spmd.py:149)
    needed: float = total / config.trainer.nnodes + _engine(config, parameters) * config.trainer.n_gpus_per_node
    return needed


def gpu_bytes(config: RunConfig, parameters: Parameters) -> GpuBytes:
    """Memory of each GPU: models are sharded over all of them, and loaded in turns (fsdp_workers.py:558, :561)."""
    actor, reference = config.worker.actor, config.worker.ref
    weights = moments = loaded = 0.0
    for part, held in _trained(config, parameters):
        if part.fsdp.enable_cpu_offload:
            continue  # the optimizer, too, works on the host
        shards, offload = _shards(config, part), part.offload
        weights += held.weights * (not offload.offload_params) / shards
        moments += held.moments * (not offload.offload_optimizer) / shards
        turn = held.gradient + held.weights * offload.offload_params + held.moments * offload.offload_optimizer
        loaded = max(loaded, turn / shards)
    if not (reference.fsdp.enable_cpu_offload or reference.offload.offload_params):
        weights += _reference(config, parameters) / _shards(config, actor)
    # vLLM starts before the first step, by which moments come into being (ray_trainer.py:304)
    return GpuBytes(weights + moments + loaded, weights, _engine(config, parameters))


def checkpoint_bytes(config: RunConfig, parameters: Parameters) -> int:
    """A checkpoint: weights, and unless `save_model_only` moments (fsdp_checkpoint_manager.py); 0 with `val_only`."""
    if config.trainer.val_only:
        return 0
    trained = [held for _, held in _trained(config, parameters)]
    return sum(held.weights + held.moments * (not config.trainer.save_model_only) for held in trained)


def _trained(config: RunConfig, parameters: Parameters) -> list[tuple[Any, _Held]]:
    held = [(part, _held(part, parameters)) for part in config.trained.values()]
    if config.trainer.val_only:  # gradients and moments come into being with the first step
        return [(part, replace(one, gradient=0, moments=0)) for part, one in held]
    return held


def _held(part: Any, parameters: Parameters) -> _Held:
    actor = isinstance(part, ActorConfig)
    if actor and part.model.lora.rank:  # fsdp_workers.py:254; its adapters are not counted
        return _Held(2 * parameters.whole, 0, 0)
    count, eye = (parameters.whole, parameters.eye) if actor else (parameters.critic, parameters.critic_eye)
    learning = count - eye * part.model.freeze_vision_tower  # fsdp_workers.py:265, :329
    weights = _size(part.fsdp.torch_dtype, torch.float32)
    # adamw_bf16 has two moments and what rounding lost, in bfloat16, whatever the weights are (torch_functional.py)
    moments = 6 if part.optim.strategy == "adamw_bf16" else 2 * weights
    return _Held(weights * count, weights * learning, moments * learning)


def _reference(config: RunConfig, parameters: Parameters) -> int:
    """Bytes of the reference, over all GPUs; LoRA's is the model without its adapters."""
    if config.algorithm.disable_kl or config.worker.actor.model.lora.rank:
        return 0
    return _size(config.worker.ref.fsdp.torch_dtype, torch.bfloat16) * parameters.whole


def _engine(config: RunConfig, parameters: Parameters) -> float:
    """Bytes of vLLM's weights on each GPU."""
    rollout = config.worker.rollout
    share: float = _size(rollout.dtype, torch.bfloat16) * parameters.whole / rollout.tensor_parallel_size
    return share


def _shards(config: RunConfig, part: Any) -> int:
    """Over how many GPUs a model is sharded (fsdp_workers.py:121)."""
    gpus, wanted = config.trainer.n_gpus_per_node * config.trainer.nnodes, part.fsdp.fsdp_size
    return int(wanted) if 0 < wanted < gpus else int(gpus)


def _count(module: Any) -> int:
    return sum(weights.numel() for weights in module.parameters())


def _size(name: str | None, otherwise: torch.dtype) -> int:
    size: int = (otherwise if name is None else PrecisionType.to_dtype(name)).itemsize
    return size
