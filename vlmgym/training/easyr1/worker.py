"""EasyR1's worker, which trains and generates on a GPU, with patches and with critics for Qwen-VL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForTokenClassification, GenerationConfig
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.checkpoint import fsdp_checkpoint_manager
from verl.utils.dataset import process_image
from verl.workers import fsdp_workers
from verl.workers.fsdp_workers import FSDPWorker
from verl.workers.rollout import vllm_rollout_spmd
from verl.workers.rollout.vllm_rollout_spmd import vLLMRollout
from verl.workers.sharding_manager import fsdp_vllm
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind

from vlmgym.training.easyr1.episodes import Sampled
from vlmgym.training.tiny_vlm import TRANSFORMERS4


def register_critics() -> None:
    """Register Qwen-VL critics, which transformers lacks, with `AutoModelForTokenClassification`."""
    for kind in TRANSFORMERS4:
        config = type(AutoConfig.for_model(kind))
        critic = critic_class(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[config])
        AutoModelForTokenClassification.register(config, critic, exist_ok=True)


def critic_class(generator: type[Any]) -> type[Any]:
    """Create the critic class of a model's class. Its head starts at zero; other weights come from the checkpoint."""
    module, name = import_module(generator.__module__), generator.__name__.removesuffix("ForConditionalGeneration")
    base, backbone = getattr(module, f"{name}PreTrainedModel"), getattr(module, f"{name}Model")

    class Critic(base):  # type: ignore[misc, valid-type]
        _checkpoint_conversion_mapping = getattr(generator, "_checkpoint_conversion_mapping", {})

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.model = backbone(config)
            self.score = nn.Linear(config.text_config.hidden_size, 1, bias=False)
            self.post_init()
            # EasyR1 saves the generation config with each checkpoint (utils/checkpoint/fsdp_checkpoint_manager.py),
            # but only models that generate text have one.
            self.generation_config = GenerationConfig.from_model_config(config)

        def _init_weights(self, module: nn.Module) -> None:
            super()._init_weights(module)
            if module is self.score:
                nn.init.zeros_(module.weight)

        def forward(self, use_cache: bool = False, **inputs: Any) -> TokenClassifierOutput:
            hidden = self.model(**inputs, use_cache=use_cache)[0]
            return TokenClassifierOutput(logits=self.score(hidden))

    Critic.__name__ = Critic.__qualname__ = f"{name}ForTokenClassification"
    return Critic


def adapter_weights(model: nn.Module, state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of LoRA's default adapter, named as in PEFT's files.

    PEFT's own function, since 0.21, returns none for a layer or a model that FSDP has wrapped, because it looks for the
    names of the modules of `model`.
    """
    return {name.replace(".default.", "."): weight for name, weight in state_dict.items() if ".lora_" in name}


class ArgumentlessWorker(Worker):
    """First base class of the worker: single_controller/ray/base.py creates it without arguments."""


class PatchedWorker:
    """Patches of `FSDPWorker`."""

    config: Any
    _cache: dict[str, Any]

    def _process_multi_modal_inputs(self, data: Any) -> None:
        """First clear the cache if uids differ: fsdp_workers.py cannot compare uids of batches of different sizes."""
        uids = self._cache.get("uid")
        if uids is not None and not np.array_equal(uids, data.non_tensor_batch["uid"]):
            self._cache.clear()
        super()._process_multi_modal_inputs(data)  # type: ignore[misc]


class VlmgymRollout(vLLMRollout):
    """vLLM that generates step by step with log-probabilities, and samples each response differently."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # vllm_rollout_spmd.py uses rollout.seed for every request, so equal prompts would get equal responses.
        self.sampling_params.seed = None
        self.sampling_params.logprobs = 0  # of sampled tokens alone
        self.sampling_params.output_kind = RequestOutputKind.FINAL_ONLY

    def generate(
        self, prompts: Sequence[tuple[str, dict[str, Any], int]], steps: int, sampling: Mapping[str, Any]
    ) -> list[tuple[str, list[Sampled]]]:
        """Add prompts to vLLM's, take up to `steps` steps, and return the responses that are then complete.

        Workers that share an engine get the same prompts and take the same steps, as tensor parallelism requires.

        Args:
            prompts: Key, features from `PromptEncoder` and number of responses of each prompt.
            steps: Maximum number of engine steps.
            sampling: Sampling parameters that override those of training.
        """
        engine = self.inference_engine.llm_engine
        adapters = engine.list_loras() if self.lora_kwargs else ()  # one, which is loaded already
        adapter = next((LoRARequest(str(number), number, "none") for number in adapters), None)
        for key, features, responses in prompts:
            params = self.sampling_params.clone()
            for name, value in {**sampling, "n": responses}.items():
                setattr(params, name, value)
            prompt: dict[str, Any] = {"prompt_token_ids": list(features["raw_prompt_ids"])}
            if images := features["multi_modal_data"]["images"]:
                prompt["multi_modal_data"] = {"image": [process_image(image, None, None) for image in images]}
            engine.add_request(key, prompt, params, lora_request=adapter)
        complete = []
        for _ in range(steps):
            if not engine.has_unfinished_requests():
                break
            complete += [output for output in engine.step() if output.finished]
        return [(output.request_id, [*map(_sampled, output.outputs)]) for output in complete]


def _sampled(output: Any) -> Sampled:
    return [*output.token_ids], [logprobs[token].logprob for token, logprobs in zip(output.token_ids, output.logprobs)]


class VlmgymWorker(ArgumentlessWorker, PatchedWorker, FSDPWorker):
    """The worker for all roles."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the models.

        Patches: fsdp_workers.py finds no critic class for Qwen-VL, gives critics the configuration of the whole worker,
        and creates the rollout. vllm_rollout_spmd.py does not set `logprobs_mode`, so that log-probabilities would not
        be those of the distribution, with temperature and top_p, from which tokens are sampled. fsdp_vllm.py and
        fsdp_checkpoint_manager.py would send and save adapters without weights, see `adapter_weights`.
        """
        register_critics()
        fsdp_workers.vLLMRollout = VlmgymRollout
        fsdp_vllm.get_peft_model_state_dict = fsdp_checkpoint_manager.get_peft_model_state_dict = adapter_weights
        vllm_rollout_spmd.LLM = partial(vllm_rollout_spmd.LLM, logprobs_mode="processed_logprobs")
        super().init_model()
        if self._has_critic:
            self.critic.config = self.config.critic

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def generate(self, call: tuple[Any, ...]) -> list[tuple[str, list[Sampled]]]:
        """Generate responses; `call` has the arguments of `VlmgymRollout.generate`."""
        complete: list[tuple[str, list[Sampled]]] = self.rollout.generate(*call)
        return complete
