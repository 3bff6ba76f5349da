"""EasyR1's worker on a CPU: EasyR1's actor, critic and image cache, with a plain sampling loop."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModelForImageTextToText, AutoModelForTokenClassification, GenerationConfig
from verl.models.monkey_patch import apply_ulysses_patch
from verl.protocol import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import torch_functional as VF
from verl.utils.dataset import process_image
from verl.utils.tokenizer import get_processor, get_tokenizer
from verl.workers.actor.dp_actor import DataParallelPPOActor
from verl.workers.critic.dp_critic import DataParallelPPOCritic
from verl.workers.fsdp_workers import FSDPWorker

from vlmgym.training.easyr1.episodes import Sampled
from vlmgym.training.easyr1.worker import PatchedWorker, register_critics

PROMPT = ("input_ids", "attention_mask", "position_ids")


class CpuProcess(Worker):
    def __init__(self) -> None:
        with patch("torch.cuda.get_device_name", lambda *_: "cpu"):  # read by Worker.__init__
            super().__init__()


class Images:
    _process_multi_modal_inputs = FSDPWorker._process_multi_modal_inputs


class CpuWorker(CpuProcess, PatchedWorker, Images):
    """`FSDPWorker` without CUDA, FSDP and vLLM."""

    def __init__(self, config: Any, role: str) -> None:
        super().__init__()
        torch.set_num_threads(1)
        if not dist.is_initialized():
            dist.init_process_group("gloo", rank=self.rank, world_size=self.world_size)
        self.config, self.role = config, role
        self._cache: dict[str, Any] = {}
        self._left: list[tuple[str, list[Sampled]]] = []
        for part in (config.actor, config.critic):  # as in FSDPWorker._init_dist_mesh
            rows = part.global_batch_size * config.rollout.n
            part.global_batch_size_per_device = rows // self.world_size

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        path = self.model_path = self.config.actor.model.model_path
        self.tokenizer, self.processor = get_tokenizer(path), get_processor(path)
        torch.manual_seed(self.rank)
        critic = self.role == "critic"
        self.module = self._load(critic)
        part = self.config.critic if critic else self.config.actor
        whole = self.module
        if self.world_size > 1:
            whole = DistributedDataParallel(self.module, find_unused_parameters=True)
        optim = part.optim
        self.optimizer = torch.optim.AdamW(
            whole.parameters(), lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay
        )
        if critic:
            self.critic = DataParallelPPOCritic(part, whole, self.optimizer)
            return
        self.actor = DataParallelPPOActor(part, whole, self.optimizer)
        self.end = GenerationConfig.from_pretrained(path).eos_token_id
        self.suppressed_tokens = self.tokenizer.convert_tokens_to_ids(["<|image_pad|>", "<|video_pad|>"])
        if not self.config.actor.disable_kl:
            self.reference = DataParallelPPOActor(self.config.ref, self._load(False).requires_grad_(False))

    def _load(self, critic: bool) -> Any:
        path = self.config.actor.model.model_path
        config = AutoConfig.from_pretrained(path)
        apply_ulysses_patch(config.model_type)  # EasyR1's own Qwen-VL forward, as with padding_free
        register_critics()
        kind = AutoModelForTokenClassification if critic else AutoModelForImageTextToText
        return kind.from_pretrained(path, config=config, attn_implementation="sdpa", dtype=torch.float32)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def prepare_rollout_engine(self) -> None: ...

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def release_rollout_engine(self) -> None: ...

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def generate(self, call: tuple[Any, ...]) -> list[tuple[str, list[Sampled]]]:
        """Generate responses to all prompts, but return only half of those that are left, as if others were longer."""
        prompts, _, sampling = call
        if prompts:
            rows = [features for _, features, responses in prompts for _ in range(responses)]
            sampled = iter(self._generate(rows, sampling.get("temperature", self.config.rollout.temperature)))
            self._left += [(key, [*islice(sampled, responses)]) for key, _, responses in prompts]
        half = -(-len(self._left) // 2)
        complete, self._left = self._left[:half], self._left[half:]
        return complete

    @torch.no_grad()
    def _generate(self, rows: list[dict[str, Any]], temperature: float) -> list[Sampled]:
        """Sample a response to each prompt, recomputing the whole sequence for each token."""
        tokens, mask, places = (torch.stack([features[key] for features in rows]) for key in PROMPT)
        images = [process_image(image, None, None) for each in rows for image in each["multi_modal_data"]["images"]]
        seen = dict(self.processor.image_processor(images=images, return_tensors="pt"))
        sampled, chosen = list[torch.Tensor](), list[torch.Tensor]()
        done = torch.zeros(len(tokens), dtype=torch.bool)
        end = torch.tensor(self.end if isinstance(self.end, list) else [self.end])
        self.module.eval()
        while len(sampled) < self.config.rollout.response_length and not done.all():
            logits = self.module(
                input_ids=tokens, attention_mask=mask, position_ids=places.transpose(0, 1), use_cache=False, **seen
            ).logits[:, -1]
            logits[:, self.suppressed_tokens] = -torch.inf
            if temperature:
                drawn = torch.multinomial(torch.softmax(logits / temperature, -1), 1)[:, 0]
            else:
                drawn = logits.argmax(-1)
            log_probs = torch.log_softmax(logits / (temperature or 1), -1)
            chosen.append(log_probs.gather(-1, drawn[:, None])[:, 0])
            drawn = torch.where(done, torch.full_like(drawn, self.tokenizer.pad_token_id), drawn)
            sampled.append(drawn)
            done |= torch.isin(drawn, end)
            tokens, mask = torch.cat([tokens, drawn[:, None]], 1), torch.cat([mask, torch.ones_like(drawn)[:, None]], 1)
            places = torch.cat([places, places[..., -1:] + 1], -1)
        responses, log_probs = torch.stack(sampled, 1), torch.stack(chosen, 1)
        lengths = VF.get_response_mask(responses, end.tolist()).sum(1).tolist()
        return [(row[:n].tolist(), logs[:n].tolist()) for row, logs, n in zip(responses, log_probs, lengths)]

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_log_probs(self, data: DataProto) -> DataProto:
        return self._log_probs(self.actor, data, "old_log_probs", {"temperature": self.config.rollout.temperature})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_ref_log_probs(self, data: DataProto) -> DataProto:
        return self._log_probs(self.reference, data, "ref_log_probs", {})

    def _log_probs(self, policy: Any, data: DataProto, key: str, meta: dict[str, Any]) -> DataProto:
        self._process_multi_modal_inputs(data)
        data.meta_info["temperature"] = self.config.rollout.temperature
        return DataProto.from_dict(tensors={key: policy.compute_log_prob(data)}, meta_info=meta)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update_actor(self, data: DataProto) -> DataProto:
        self._process_multi_modal_inputs(data)
        return _metrics(self.actor.update_policy(data))

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_values(self, data: DataProto) -> DataProto:
        self._process_multi_modal_inputs(data)
        return DataProto.from_dict(tensors={"values": self.critic.compute_values(data)})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update_critic(self, data: DataProto) -> DataProto:
        self._process_multi_modal_inputs(data)
        return _metrics(self.critic.update_critic(data))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, path: str, save_model_only: bool = False) -> None:
        """Write files with the names that FSDPCheckpointManager uses."""
        if self.rank:
            return
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.module.state_dict(), folder / "model_world_size_1_rank_0.pt")
        torch.save(self.optimizer.state_dict(), folder / "optim_world_size_1_rank_0.pt")
        for part in (self.module.config, GenerationConfig.from_pretrained(self.model_path), self.processor):
            part.save_pretrained(folder / "huggingface")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, path: str) -> None:
        self.module.load_state_dict(torch.load(Path(path) / "model_world_size_1_rank_0.pt"))
        self.optimizer.load_state_dict(torch.load(Path(path) / "optim_world_size_1_rank_0.pt"))


def _metrics(found: dict[str, Any]) -> DataProto:
    return DataProto(
        non_tensor_batch={key: np.array([value] if np.isscalar(value) else value) for key, value in found.items()}
    )
