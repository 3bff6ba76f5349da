"""Save sharded checkpoints from two processes with EasyR1's manager: python -m tests.easyr1_cpu.sharded MODEL OUT

Writes the checkpoints `whole` (all weights trained), `lora` (adapters) and `critic` to OUT.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vlmgym.training.easyr1 import stand_in_for_vllm

stand_in_for_vllm()

import peft  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: E402
from torch.multiprocessing import start_processes  # noqa: E402
from transformers import AutoModelForImageTextToText, AutoModelForTokenClassification  # noqa: E402
from verl.utils.checkpoint import fsdp_checkpoint_manager  # noqa: E402
from verl.utils.fsdp_utils import get_fsdp_wrap_policy  # noqa: E402
from verl.utils.tokenizer import get_processor  # noqa: E402

from vlmgym.training.easyr1.worker import register_critics  # noqa: E402

PROCESSES = 2
POLICIES = ("whole", "lora")
KINDS = (*POLICIES, "critic")


def make_model(path: str, kind: str) -> Any:
    """Load a model and change its weights, in the same way in every process."""
    torch.manual_seed(0)
    register_critics()
    loads = AutoModelForTokenClassification if kind == "critic" else AutoModelForImageTextToText
    model = loads.from_pretrained(path, dtype=torch.float32)
    if kind == "lora":  # as in FSDPWorker, with the settings of configs/lora.yaml
        settings = {"r": 4, "lora_alpha": 4, "target_modules": "all-linear", "exclude_modules": ".*visual.*"}
        model = peft.get_peft_model(model, peft.LoraConfig(task_type=peft.TaskType.CAUSAL_LM, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save(rank: int, path: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,), mesh_dim_names=("fsdp",))
    fsdp_checkpoint_manager.torch = _CpuTorch()  # the manager gathers adapters on a GPU
    for kind in KINDS:
        model = make_model(path, kind)
        wrapped = FullyShardedDataParallel(
            model,
            auto_wrap_policy=get_fsdp_wrap_policy(model, is_lora_model=kind == "lora"),
            device_id=torch.device("cpu"),
            device_mesh=mesh,
            use_orig_params=False,
        )
        manager = fsdp_checkpoint_manager.FSDPCheckpointManager(wrapped, None, None, get_processor(path))
        manager.save_checkpoint(f"{out}/{kind}/actor", save_model_only=True)
    dist.destroy_process_group()


class _CpuTorch:
    cuda = SimpleNamespace(empty_cache=lambda: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def device(self, _: str) -> torch.device:
        return torch.device("cpu")


if __name__ == "__main__":
    path, out = sys.argv[1:]
    Path(out).mkdir(parents=True)
    # Fork, so that slow imports happen once; no thread has been started yet.
    start_processes(save, (path, out), PROCESSES, start_method="fork")
