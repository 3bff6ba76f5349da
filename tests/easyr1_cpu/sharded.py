"""Two processes save a model, sharded, by EasyR1's checkpoint manager: python -m tests.easyr1_cpu.sharded MODEL OUT

OUT gets the checkpoints `whole`, of a model all of which was trained, and `lora`, of one with adapters.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

PROCESSES = 2
KINDS = ("whole", "lora")


def make_model(path: str, kind: str) -> Any:
    """The model that is saved: other weights than those of the folder, the same in every process."""
    import peft
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    if kind == "lora":  # as in FSDPWorker, with the settings of configs/lora.yaml
        settings = {"r": 4, "lora_alpha": 4, "target_modules": "all-linear", "exclude_modules": ".*visual.*"}
        model = peft.get_peft_model(model, peft.LoraConfig(task_type=peft.TaskType.CAUSAL_LM, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save(rank: int, path: str, out: str) -> None:
    from tests.easyr1_cpu import vllm_stub

    vllm_stub.install()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel
    from verl.utils.checkpoint import fsdp_checkpoint_manager
    from verl.utils.fsdp_utils import get_fsdp_wrap_policy
    from verl.utils.tokenizer import get_processor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,), mesh_dim_names=("fsdp",))
    fsdp_checkpoint_manager.torch = _CpuTorch()  # it gathers adapters on a GPU
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
    multiprocessing.spawn(save, (path, out), PROCESSES)
