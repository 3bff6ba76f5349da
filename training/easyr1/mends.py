"""What is replaced in EasyR1's modules, each with its file; the worker's mends are in worker.py.

- trainer/ray_trainer.py `compute_advantage` knows no episodes and no filling rows, and its GAE
  (trainer/core_algos.py) tests the truth of a tensor, which fails for more than one row.
- trainer/metrics.py `compute_data_metrics` counts filling rows.
- single_controller/ray/base.py waits 120 s for the first worker, which is not enough where torch and vLLM come from
  a slow disk: here it waits for 5 minutes.
- utils/logger/logger.py the `file` logger empties its file when a run goes on: `vlmgym` is one that does not.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import verl.single_controller.ray.base as ray_base
import verl.trainer.ray_trainer as ray_trainer
from verl.protocol import DataProto
from verl.trainer.metrics import compute_data_metrics
from verl.trainer.ray_trainer import compute_advantage
from verl.utils.logger.logger import LOGGERS

from training.easyr1.advantages import Beyond, advantages_of
from training.easyr1.run_log import RunLog

WAIT = 300.0
"""Seconds that the first worker has to start."""


def install(step_weight: float, beyond: Beyond) -> None:
    """Replace them in this process, which is the trainer's.

    Args:
        step_weight: Of `advantages_of`.
        beyond: Of `advantages_of`.
    """
    ray_trainer.compute_advantage = partial(
        advantages_of, step_weight=step_weight, stock=compute_advantage, beyond=beyond
    )
    ray_trainer.compute_data_metrics = metrics_of_live_rows
    ray_base.time = SimpleNamespace(sleep=lambda _: time.sleep(WAIT / 120))
    LOGGERS["vlmgym"] = RunLog


def metrics_of_live_rows(batch: DataProto, use_critic: bool = False) -> dict[str, float]:
    """EasyR1's metrics of a batch, without the rows that only fill it."""
    live = batch.non_tensor_batch["live"].astype(bool)
    metrics: dict[str, float] = compute_data_metrics(batch=batch[np.flatnonzero(live)], use_critic=use_critic)
    return metrics
