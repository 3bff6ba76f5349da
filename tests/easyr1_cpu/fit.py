"""Train tiny checkpoints on a CPU with EasyR1's trainer: python -m tests.easyr1_cpu.fit RUNS.json

In RUNS.json, `runs` has the arguments of `python -m vlmgym.training.easyr1` for each run. `models` is null, or a folder
for the models of `tests.easyr1_cpu.models`. All runs share a process and a Ray cluster, because importing EasyR1's
dependencies takes longer than everything else.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vlmgym.training.easyr1 import stand_in_for_vllm

stand_in_for_vllm()

import ray  # noqa: E402
import ray._private.utils  # noqa: E402

from tests.easyr1_cpu.models import make_models  # noqa: E402
from tests.easyr1_cpu.worker import CpuWorker  # noqa: E402
from vlmgym.training.easyr1.config import preflight, read_config  # noqa: E402
from vlmgym.training.easyr1.trainer import build_trainer, start_ray  # noqa: E402

PRETENDED = 8
"""Number of GPUs and CPUs that Ray assumes."""


def main(models: str | None, runs: list[list[str]], worker: type[Any], setup: str) -> None:
    """Train; `setup` is the function that Ray calls first in each process."""
    if models is not None:
        make_models(Path(models))
    os.environ["RAY_AUTH_MODE"] = "disabled"
    # Ray ends if the dashboard's agent takes more than 15 s to start. As if the dashboard were not installed, it does
    # little, so that it also starts in time on a busy machine.
    ray._private.utils.get_dashboard_dependency_error = lambda: ImportError("the dashboard is not used")
    start_ray(
        num_cpus=PRETENDED,
        num_gpus=PRETENDED,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        _system_config={"prestart_worker_first_driver": False},  # would start idle workers
        log_to_driver="RAY_LOG" in os.environ,
        runtime_env={"worker_process_setup_hook": setup},
    )
    for run in runs:
        config = read_config(run)
        assert preflight(config, machine=False)[0] == []
        trainer = build_trainer(config, worker)
        trainer.init_workers()
        trainer.fit()
        for pool in trainer.resource_pool_manager.resource_pool_dict.values():
            for group in pool.get_placement_groups():  # ends the workers of these groups
                ray.util.remove_placement_group(group)
    ray.shutdown()


if __name__ == "__main__":
    request = json.loads(Path(sys.argv[1]).read_text())
    main(request["models"], request["runs"], CpuWorker, "vlmgym.training.easyr1.stand_in_for_vllm")
