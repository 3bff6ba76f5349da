"""Trains a tiny checkpoint on a CPU: python -m tests.easyr1_cpu.fit FILE.yaml ... SETTING=VALUE ..."""

from __future__ import annotations

import os
import sys

from tests.easyr1_cpu import vllm_stub

vllm_stub.install()

import ray  # noqa: E402

from tests.easyr1_cpu.worker import CpuWorker  # noqa: E402
from training.easyr1.config import read_config  # noqa: E402
from training.easyr1.launch import build_trainer, start_ray  # noqa: E402


def main(args: list[str]) -> None:
    config = read_config(args)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    gpus = config.trainer.n_gpus_per_node  # pretended
    start_ray(
        num_cpus=gpus + 4,
        num_gpus=gpus,
        include_dashboard=False,
        log_to_driver="RAY_LOG" in os.environ,
        runtime_env={"worker_process_setup_hook": "tests.easyr1_cpu.vllm_stub.install"},
    )
    trainer = build_trainer(config, CpuWorker)
    trainer.init_workers()
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
