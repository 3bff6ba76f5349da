"""EasyR1's worker, which trains and generates on a GPU, with patches."""

from __future__ import annotations

from typing import Any

import numpy as np
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.fsdp_workers import FSDPWorker

from vlmgym.training.easyr1.critics import register_critics


class ArgumentlessWorker(Worker):
    """First base class of the worker: single_controller/ray/base.py creates it without arguments."""


class PatchedWorker:
    """Patches of `FSDPWorker`."""

    config: Any
    _cache: dict[str, Any]

    def _process_multi_modal_inputs(self, data: Any) -> None:
        """First clear the cache if uids differ: fsdp_workers.py cannot compare uids of batches of different sizes."""
        known = self._cache.get("uid")
        if known is not None and not np.array_equal(known, data.non_tensor_batch["uid"]):
            self._cache.clear()
        super()._process_multi_modal_inputs(data)  # type: ignore[misc]


class VlmgymWorker(ArgumentlessWorker, PatchedWorker, FSDPWorker):
    """The worker for all roles."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the models.

        Patches: fsdp_workers.py finds no critic class for Qwen-VL, and gives critics the configuration of the whole
        worker. vllm_rollout_spmd.py uses rollout.seed for every request, so equal prompts would get equal responses.
        """
        register_critics()
        super().init_model()
        if self._has_critic:
            self.critic.config = self.config.critic
        if self._has_rollout:
            self.rollout.sampling_params.seed = None
