"""Distributed RL with EasyR1 (Ray, FSDP, vLLM), installed unmodified; see docs/training.md."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

VLLM = (
    *("vllm", "vllm.distributed", "vllm.sampling_params", "vllm.lora"),
    *("vllm.lora.models", "vllm.lora.request", "vllm.lora.utils", "vllm.lora.worker_manager"),
)
"""Modules of vLLM that EasyR1 and worker.py import. Without them, not even EasyR1's configuration can be imported."""


class _StandIn(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in_for_vllm() -> None:
    """Install stand-ins for vLLM unless it is installed."""
    if "vllm" not in sys.modules and find_spec("vllm") is None:
        for name in VLLM:
            sys.modules[name] = module = _StandIn(name)
            module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []
