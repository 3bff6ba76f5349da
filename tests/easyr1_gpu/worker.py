"""Drive EasyR1's own worker in this process, without Ray and vLLM: python -m tests.easyr1_gpu.worker FOLDER [--cpu]

The process group is NCCL's, with one process; with --cpu, gloo's.
"""

from __future__ import annotations

import os
import socket
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if "--cpu" in sys.argv:
    from tests.easyr1_gpu.cpu import install

    install()

from vlmgym.training.easyr1 import stand_in_for_vllm

stand_in_for_vllm()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForImageTextToText  # noqa: E402
from verl.protocol import DataProto  # noqa: E402

from tests.easyr1_cpu.rollout_workers import CONFIGS  # noqa: E402
from tests.tiny_model import make_model  # noqa: E402
from vlmgym.training.config import TinySize  # noqa: E402
from vlmgym.training.easyr1.batch import PromptEncoder, load_processors, prompt_batch  # noqa: E402
from vlmgym.training.easyr1.config import RunConfig, read_config  # noqa: E402
from vlmgym.training.easyr1.episodes import RolloutWorker  # noqa: E402
from vlmgym.training.easyr1.export import export  # noqa: E402
from vlmgym.training.easyr1.settings import Section  # noqa: E402
from vlmgym.training.easyr1.worker import VlmgymWorker  # noqa: E402

TOKENS = 8
"""Tokens per response."""


class WithoutRollout(VlmgymWorker):
    """The worker without vLLM."""

    def _build_rollout(self) -> None:
        self.rollout_sharding_manager = SimpleNamespace(freed_bytes=0)


def make_batch(config: RunConfig) -> DataProto:
    """Make a batch of four prompts with random responses of different lengths, advantages and returns."""
    section, model = Section.read(config.vlmgym), config.worker.actor.model
    tokenizer, processor = load_processors(model, config.data)
    curriculum = section.make_curriculum()
    rollouts = RolloutWorker(section, PromptEncoder(tokenizer, processor, config.data), 0, "tiny")
    requests = rollouts.start([*curriculum.picks(curriculum.begin(), 0, range(4)).items()], 1)
    meta: dict[str, Any] = {"min_pixels": None, "max_pixels": None, "video_fps": 2.0, "temperature": 1.0}
    prompts = prompt_batch(requests, meta)
    torch.manual_seed(0)
    responses = torch.randint(100, (len(requests), TOKENS))
    mask = (torch.arange(TOKENS) < torch.tensor([[TOKENS], [5], [3], [1]])).long()
    positions = prompts.batch["position_ids"]
    attention = torch.cat([prompts.batch["attention_mask"], mask], 1)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts.batch["input_ids"],
            "responses": responses,
            "input_ids": torch.cat([prompts.batch["input_ids"], responses], 1),
            "attention_mask": attention,
            "response_mask": mask,
            "position_ids": torch.cat([positions, positions[..., -1:] + torch.arange(1, TOKENS + 1)], -1),
            "advantages": torch.randn(responses.shape) * mask,
            "returns": 1.0 * mask,
        },
        non_tensors={
            "uid": np.arange(len(requests)).astype(str).astype(object),
            "multi_modal_data": prompts.non_tensor_batch["multi_modal_data"],
        },
        meta_info={**meta, "global_token_num": attention.sum(1).tolist()},
    )


def check_actor(config: RunConfig, batch: DataProto, folder: Path) -> None:
    """Update the actor, save it, load it again, and export it."""
    actor = WithoutRollout(config.worker, "actor_rollout_ref")
    actor.init_model()
    mask = batch.batch["response_mask"].bool()

    def logprobs() -> torch.Tensor:
        computed: torch.Tensor = actor.compute_log_probs(deepcopy(batch)).batch["old_log_probs"][mask]
        return computed

    before = logprobs()
    reference = actor.compute_ref_log_probs(deepcopy(batch)).batch["ref_log_probs"][mask]
    assert (before - reference).abs().max() < 0.05
    batch.batch["old_log_probs"] = torch.zeros(mask.shape).masked_scatter(mask, before)
    metrics = actor.update_actor(deepcopy(batch)).non_tensor_batch
    assert all(0 < norm < 1e3 for norm in metrics["actor/grad_norm"]), metrics
    after = logprobs()
    assert (after - before).abs().max() > 0.01
    actor.save_checkpoint(str(folder / "actor"))
    actor.update_actor(deepcopy(batch))
    assert (logprobs() - after).abs().max() > 0.01
    actor.load_checkpoint(str(folder / "actor"))
    assert torch.equal(logprobs(), after)
    export(folder, folder / "exported", torch.float32)
    trained, initial = (
        dict(AutoModelForImageTextToText.from_pretrained(path).named_parameters())
        for path in (folder / "exported", config.worker.actor.model.model_path)
    )
    assert any(not torch.equal(weights, initial[name]) for name, weights in trained.items())


def check_critic(config: RunConfig, batch: DataProto) -> None:
    """Update the critic."""
    critic = WithoutRollout(config.worker, "critic")
    critic.init_model()
    mask = batch.batch["response_mask"].bool()
    values = critic.compute_values(deepcopy(batch)).batch["values"]
    assert not values[mask].any()
    batch.batch["values"] = values
    critic.update_critic(deepcopy(batch))
    after = critic.compute_values(deepcopy(batch)).batch["values"][mask]
    assert (after > 0).all(), "all returns are 1"


def main(folder: Path) -> None:
    """Check all methods of the worker that training calls, except for those of vLLM."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    make_model("qwen3_vl", folder / "model", size=TinySize(tied=False))
    files = [*(CONFIGS / f"{name}.yaml" for name in ("base", "2048", "ppo")), Path(__file__).with_name("small.yaml")]
    settings = [f"worker.actor.model.model_path={folder / 'model'}", "trainer.n_gpus_per_node=1"]
    config = read_config([*map(str, files), *settings, "worker.rollout.n=1", "worker.actor.ppo_epochs=1"])
    batch = make_batch(config)
    check_actor(deepcopy(config), deepcopy(batch), folder)
    check_critic(deepcopy(config), deepcopy(batch))
    print("the worker passed")


if __name__ == "__main__":
    main(Path(next(argument for argument in sys.argv[1:] if argument != "--cpu")))
