"""Patches to EasyR1 in the trainer process, by patched file; patches to the worker are in worker.py.

- trainer/ray_trainer.py: `compute_advantage` does not support episodes or padding rows, and its GAE
  (trainer/core_algos.py) evaluates a tensor as a bool, which fails for more than one row.
- trainer/metrics.py: `compute_data_metrics` counts padding rows.
- single_controller/ray/base.py: the timeout of 120 s is too short for the first worker on slow disks; 5 minutes here.
- utils/logger/logger.py: the `file` logger truncates its file on resume; the `vlmgym` logger does not.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

import verl.single_controller.ray.base as ray_base
import verl.trainer.ray_trainer as ray_trainer
from verl.protocol import DataProto
from verl.trainer.metrics import compute_data_metrics
from verl.trainer.ray_trainer import compute_advantage
from verl.utils.logger.logger import LOGGERS

from vlmgym.training.easyr1.advantages import BootstrapValues, compute_advantages
from vlmgym.training.easyr1.batch import real_rows
from vlmgym.training.easyr1.run_log import RunLog

WAIT = 300.0
"""Timeout for the start of the first worker, in seconds."""


def install(step_weight: float, bootstrap_values: BootstrapValues) -> None:
    """Apply all patches of this module; the arguments are passed to `compute_advantages`."""
    ray_trainer.compute_advantage = partial(
        compute_advantages, step_weight=step_weight, stock=compute_advantage, bootstrap_values=bootstrap_values
    )
    ray_trainer.compute_data_metrics = compute_metrics
    ray_base.time = SimpleNamespace(sleep=lambda _: time.sleep(WAIT / 120))
    LOGGERS["vlmgym"] = RunLog


def compute_metrics(batch: DataProto, use_critic: bool = False) -> dict[str, float]:
    """Compute the metrics of EasyR1 without padding rows."""
    metrics: dict[str, float] = compute_data_metrics(batch=batch[real_rows(batch)], use_critic=use_critic)
    return metrics
