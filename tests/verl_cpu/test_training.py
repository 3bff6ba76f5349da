"""verl's own trainer, FSDP engine and agent loop, with a vLLM server, train a tiny model on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from tests.in_training.tiny import make_checkpoint
from vlmgym import RewardConfig, make_dataset
from vlmgym.integrations.verl import to_verl

ROOT = Path(__file__).parents[2]
REWARD = RewardConfig(shaping="log2", illegal=-1.0, unparsable=-1.0)
VARIABLES = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "tests.verl_cpu.platform",
    "VERL_ENGINE_DEVICE": "cuda",  # the engine that verl registers for CUDA
    "PYTHONPATH": str(ROOT),
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
OPTIONS = f"""
    algorithm.adv_estimator=grpo
    data.train_batch_size=4
    data.max_prompt_length=512
    data.max_response_length=512
    data.dataloader_num_workers=0
    actor_rollout_ref.actor.ppo_mini_batch_size=4
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.fsdp_config.model_dtype=fp32
    +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
    actor_rollout_ref.actor.use_torch_compile=false
    actor_rollout_ref.actor.optim.lr=1e-2
    +actor_rollout_ref.model.override_config.attn_implementation=sdpa
    actor_rollout_ref.model.use_remove_padding=false
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=2
    actor_rollout_ref.rollout.dtype=float32
    actor_rollout_ref.rollout.enforce_eager=true
    actor_rollout_ref.rollout.free_cache_engine=false
    +actor_rollout_ref.rollout.enable_sleep_mode=false
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.calculate_log_probs=true
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2
    actor_rollout_ref.rollout.agent.num_workers=1
    actor_rollout_ref.rollout.agent.agent_loop_config_path={ROOT}/examples/verl/agent_loop.yaml
    reward.num_workers=1
    trainer.device=cpu
    trainer.logger=[file]
    trainer.n_gpus_per_node=1
    trainer.test_freq=-1
    trainer.total_training_steps=2
    trainer.val_before_train=false
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1
    ray_kwargs.ray_init.num_cpus=8
    +ray_kwargs.ray_init.num_gpus=1
    +ray_kwargs.ray_init.include_dashboard=false
    +ray_kwargs.ray_init.log_to_driver=false
    +ray_kwargs.ray_init.object_store_memory=200000000
    +ray_kwargs.ray_init._system_config.prestart_worker_first_driver=false
"""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("verl")
    rows = make_dataset("2048", 8, max_turns=2, chat=True, reward=REWARD, size=64)
    for split in ("train", "val"):
        Dataset.from_list(to_verl(rows)).to_parquet(folder / f"{split}.parquet")
    return [
        *OPTIONS.split(),
        f"actor_rollout_ref.model.path={make_checkpoint(folder / 'model', 'qwen2_5_vl')}",
        *(f"data.{split}_files={folder / split}.parquet" for split in ("train", "val")),
    ]


def train(folder: Path, options: list[str], **variables: str) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run the launcher; return the process and the metrics of each step."""
    log = folder / "metrics.jsonl"
    command = [sys.executable, "-m", "vlmgym.training.verl", *options, f"trainer.default_local_dir={folder}"]
    environment = {**os.environ, **VARIABLES, **variables, "VERL_FILE_LOGGER_PATH": str(log)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = log.read_text().splitlines() if log.exists() else []
    return done, [json.loads(line)["data"] for line in lines]


def test_two_steps(tmp_path: Path, options: list[str]) -> None:
    done, steps = train(tmp_path, options)
    assert done.returncode == 0, done.stderr
    assert [step["training/global_step"] for step in steps] == [1, 2]
    assert steps[0]["sight/logprob_gap"] > 1e-3
    assert "sight/logprob_gap" not in steps[1]
    for step in steps:  # vLLM has the weights of the actor, which change after the first step
        assert step["training/rollout_actor_probs_pearson_corr"] > 0.9999
        assert step["actor/grad_norm"] > 0
        assert -2.0 <= step["critic/score/min"] <= step["critic/score/max"]


def test_training_without_pixels_stops(tmp_path: Path, options: list[str]) -> None:
    done, steps = train(tmp_path, options, PIXELS="lost")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: the model does not see its images"), done.stderr
    assert steps == []
