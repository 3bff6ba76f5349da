"""EasyR1's worker, which trains and generates on a GPU, with its faults mended."""

from __future__ import annotations

from typing import Any

import numpy as np
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.fsdp_workers import FSDPWorker

from training.easyr1.critics import register_critics


class PlainWorker(Worker):
    """Made without arguments, as single_controller/ray/base.py makes the first base of a worker's class."""


class WorkerMends:
    """What is mended in `FSDPWorker`, in front of it."""

    config: Any
    _cache: dict[str, Any]

    def _process_multi_modal_inputs(self, data: Any) -> None:
        """fsdp_workers.py compares the uids of two batches, which fails if one has more rows than the other."""
        known = self._cache.get("uid")
        if known is not None and not np.array_equal(known, data.non_tensor_batch["uid"]):
            self._cache.clear()
        super()._process_multi_modal_inputs(data)  # type: ignore[misc]


class VlmgymWorker(PlainWorker, WorkerMends, FSDPWorker):
    """The worker of all roles."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the models.

        fsdp_workers.py finds no critic for Qwen-VL, and gives the critic the configuration of the whole worker,
        and vllm_rollout_spmd.py makes rollout.seed the seed of every single request, by which equal prompts would
        be answered alike; the engine has that seed.
        """
        register_critics()
        super().init_model()
        if self._has_critic:
            self.critic.config = self.config.critic
        if self._has_rollout:
            self.rollout.sampling_params.seed = None
