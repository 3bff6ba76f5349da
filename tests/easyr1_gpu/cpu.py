"""Run EasyR1's worker and vLLM 0.11 for GPUs on a CPU. All code runs as it is, except for what needs CUDA."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import pairwise
from types import CodeType, ModuleType
from typing import Any

import torch
import transformers.utils
from tensordict import TensorDict
from torch.distributed.fsdp import _init_utils
from torch.nn.functional import scaled_dot_product_attention

CUDA: dict[str, Callable[..., Any]] = {
    "current_device": lambda: torch.device("cpu"),
    "get_device_name": lambda *_: "cpu",
    "mem_get_info": lambda *_: (0, 0),
    "max_memory_allocated": lambda *_: 0,
    "max_memory_reserved": lambda *_: 0,
    "manual_seed": torch.manual_seed,  # vLLM samples on the CPU, so that this generator takes the place of the GPU's
    "get_rng_state": torch.get_rng_state,
    "set_rng_state": torch.set_rng_state,
}
"""Functions of `torch.cuda` that EasyR1 calls."""
NAMES = {"cuda": "cpu", "nccl": "gloo"}
"""Strings in EasyR1's code: the names of the device, and of the library that sends tensors between GPUs."""
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "all|all",  # no worker is bound to a core, because that needs a build for the CPU
    "OMP_NUM_THREADS": "1",
}


def install() -> None:
    """Replace what needs CUDA. Call this before verl and vllm are imported, in each process."""
    os.environ.update(VARIABLES)
    for name, function in CUDA.items():
        setattr(torch.cuda, name, function)
    TensorDict.cuda = lambda self, **_: self  # called to gather data for tensor parallelism
    torch.Tensor.pin_memory = lambda self, *_: self  # FSDP pins offloaded weights, for copies to a GPU
    _init_utils._check_module_states_for_sync_module_states = lambda _: None  # would reject weights on a CPU
    sys.meta_path.insert(0, _Finder())
    _install_flash_attention()


class _Finder(PathFinder):
    """Finds EasyR1's modules."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "verl":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module of EasyR1 with other `NAMES`."""

    def get_code(self, fullname: str) -> CodeType:
        if fullname == "verl.workers.rollout":  # the first to import vLLM
            _prepare_vllm()
        tree = ast.parse(self.get_data(self.path))  # never from a cache, nor written to one
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = NAMES.get(node.value, node.value)
        return compile(tree, self.path, "exec")


# flash-attn, which has no functions for the CPU -----------------------------------------------------------------------


def _install_flash_attention() -> None:
    """Let transformers and EasyR1 import `flash_attn`."""
    for module in (transformers.utils, transformers.utils.import_utils):
        for name in ("is_flash_attn_2_available", "is_flash_attn_greater_or_equal_2_10"):
            setattr(module, name, lambda: True)
    from transformers.modeling_flash_attention_utils import _pad_input, _unpad_input  # copied from flash-attn

    padding: dict[str, Any] = {"pad_input": _pad_input, "unpad_input": _unpad_input}
    padding["rearrange"] = import_module("einops").rearrange
    padding["index_first_axis"] = lambda rows, indices: rows[indices]
    attention = {"flash_attn_func": flash_attn_func, "flash_attn_varlen_func": flash_attn_varlen_func}
    for name, functions in (("flash_attn", attention), ("flash_attn.bert_padding", padding)):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__dict__.update(functions, __path__=[])
        sys.modules[name] = module


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Attend within each packed sequence; shapes (tokens, heads, size)."""
    if q.dtype != torch.bfloat16:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")  # as the original
    spans = zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()))
    return torch.cat([attend(q[a:b], k[c:d], v[c:d], softmax_scale, causal) for (a, b), (c, d) in spans])


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Attend within each row; shapes (rows, tokens, heads, size)."""
    return torch.stack([attend(*row, softmax_scale, causal) for row in zip(q, k, v)])


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, causal: bool
) -> torch.Tensor:
    """Compute attention; shapes (tokens, heads, size). If causal, the last query sees all keys."""
    mask = torch.ones(len(query), len(key), dtype=torch.bool)
    states = (states.transpose(0, 1) for states in (query, key, value))
    seen = mask.tril(len(key) - len(query)) if causal else mask
    return scaled_dot_product_attention(*states, attn_mask=seen, scale=scale, enable_gqa=True).transpose(0, 1)


# vLLM, whose build for GPUs lacks the kernels of its build for CPUs ---------------------------------------------------


def _prepare_vllm() -> None:
    """Select vLLM's platform for CPUs, with operations in torch."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    class Platform(CpuPlatform):
        def is_sleep_mode_available(self) -> bool:
            return True

        @classmethod
        def check_and_update_config(cls, vllm_config: Any) -> None:
            launcher = vllm_config.parallel_config.distributed_executor_backend
            super().check_and_update_config(vllm_config)
            vllm_config.parallel_config.distributed_executor_backend = launcher  # would start processes of its own
            vllm_config.parallel_config.data_parallel_rank_local = None  # would take part of VLLM_CPU_OMP_THREADS_BIND
            vllm_config.model_config.enable_sleep_mode = False  # needs an allocator for CUDA; `sleep` still works

    vllm.platforms._current_platform = Platform()
    from vllm.model_executor.custom_op import CustomOp
    from vllm.v1.attention.backends.cpu_attn import TorchSDPABackendImpl

    CustomOp.forward_cpu = lambda self, *args, **options: self.forward_native(*args, **options)
    TorchSDPABackendImpl.forward = paged_attention


def paged_attention(
    self: Any,
    layer: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kv_cache: torch.Tensor,
    attn_metadata: Any,
    *_: Any,
    **__: Any,
) -> torch.Tensor:
    """Append keys and values to the cache, and attend to it; the arguments are vLLM's."""
    if attn_metadata is None:  # warming up
        return query
    meta = attn_metadata
    block_size = kv_cache.shape[2] // (self.num_kv_heads * self.head_size)
    keys, values = kv_cache.view(2, -1, self.num_kv_heads, self.head_size)
    query = query.view(-1, self.num_heads, self.head_size)
    keys[meta.slot_mapping], values[meta.slot_mapping] = (states.view(-1, *keys.shape[1:]) for states in (key, value))
    tables: Sequence[torch.Tensor] = [*meta.prefill_block_tables, *meta.block_tables]
    output = []
    for (start, stop), table, length in zip(pairwise(meta.query_start_loc.tolist()), tables, meta.seq_lens):
        slots = (table[:, None] * block_size + torch.arange(block_size)).flatten()[:length]
        output.append(attend(query[start:stop], keys[slots], values[slots], self.scale, causal=True))
    return torch.cat(output).flatten(1)
