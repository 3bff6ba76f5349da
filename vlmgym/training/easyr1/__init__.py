"""Distributed RL with EasyR1 (Ray, FSDP, vLLM), installed unmodified; see docs/training.md."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

VLLM_NAMES = {
    "vllm": ("LLM", "RequestOutput", "SamplingParams"),
    "vllm.lora": (),
    "vllm.lora.models": ("LoRAModel",),
    "vllm.lora.request": ("LoRARequest",),
    "vllm.lora.utils": ("get_adapter_absolute_path",),
    "vllm.lora.worker_manager": ("LRUCacheWorkerLoRAManager",),
    "vllm.distributed": ("parallel_state",),
    "vllm.sampling_params": ("RequestOutputKind",),
}
"""Names that EasyR1 and worker.py import from vLLM. Without them, not even EasyR1's configuration can be imported."""


class _Missing:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("vLLM is not installed")


def stand_in_for_vllm() -> None:
    """Install stand-ins for vLLM unless it is installed."""
    if "vllm" in sys.modules or find_spec("vllm") is not None:
        return
    for name, members in VLLM_NAMES.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        for member in members:
            setattr(module, member, type(member, (_Missing,), {}))
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
