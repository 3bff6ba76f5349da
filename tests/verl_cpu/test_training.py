"""verl's own trainer, FSDP engine and agent loop, with a vLLM server, train a tiny model on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.in_training.tiny import make_checkpoint
from vlmgym import Episode
from vlmgym.errors import UsageError
from vlmgym.training.config import Kind
from vlmgym.training.verl.__main__ import check, main, read_config
from vlmgym.training.verl.dataset import GameDataset

ROOT = Path(__file__).parents[2]
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
SECTION = """
vlmgym:
  games: [{game: "2048", overrides: {size: 64}}]
  play: {max_turns: 2, chat: true}
  reward: {illegal: -1.0, unparsable: -1.0}
  validation: {episodes: 2}
"""
OPTIONS = """
    data.train_batch_size=4
    data.max_prompt_length=512
    data.max_response_length=272
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
    actor_rollout_ref.rollout.n=4
    actor_rollout_ref.rollout.dtype=float32
    actor_rollout_ref.rollout.enforce_eager=true
    actor_rollout_ref.rollout.free_cache_engine=false
    +actor_rollout_ref.rollout.enable_sleep_mode=false
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.calculate_log_probs=true
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2
    actor_rollout_ref.rollout.agent.num_workers=1
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


MODES: dict[str, tuple[Kind, str]] = {
    "grpo": ("qwen2_5_vl", ""),
    "ranks": ("qwen3_vl", "trainer.n_gpus_per_node=2 +ray_kwargs.ray_init.num_gpus=2"),
}
"""Model and further options of each mode."""


def options_of(folder: Path, mode: str) -> list[str]:
    kind, more = MODES[mode]
    (folder / "games.yaml").write_text(SECTION)
    model = make_checkpoint(folder / "model", kind)
    given = {option.partition("=")[0] for option in more.split()}
    options = [option for option in OPTIONS.split() if option.partition("=")[0] not in given]
    return [str(folder / "games.yaml"), *options, *more.split(), f"actor_rollout_ref.model.path={model}"]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return options_of(tmp_path_factory.mktemp("verl"), "grpo")


def train(folder: Path, options: list[str], **variables: str) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run the launcher; return the process and the metrics of each step."""
    log = folder / "metrics.jsonl"
    command = [sys.executable, "-m", "vlmgym.training.verl", *options, f"trainer.default_local_dir={folder}"]
    environment = {**os.environ, **VARIABLES, **variables, "VERL_FILE_LOGGER_PATH": str(log)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = log.read_text().splitlines() if log.exists() else []
    return done, [json.loads(line)["data"] for line in lines]


@pytest.mark.parametrize("mode", MODES)
def test_two_steps(tmp_path: Path, mode: str) -> None:
    done, steps = train(tmp_path, options_of(tmp_path, mode))
    assert done.returncode == 0, done.stderr
    assert [step["training/global_step"] for step in steps] == [1, 2]
    assert steps[0]["sight/logprob_gap"] > 1e-3
    assert "sight/logprob_gap" not in steps[1]
    for step in steps:  # vLLM has the weights of the actor, which change after the first step
        assert step["training/rollout_actor_probs_pearson_corr"] > 0.9999
        assert -2.0 <= step["critic/score/min"] <= step["critic/score/max"]
    assert max(step["actor/grad_norm"] for step in steps) > 0  # some episodes of a group have room for a second turn


def test_training_without_pixels_stops(tmp_path: Path, options: list[str]) -> None:
    done, steps = train(tmp_path, options, PIXELS="lost")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: the model does not see its images"), done.stderr
    assert steps == []


def test_states_are_the_same_in_every_process(options: list[str]) -> None:
    stages = "[{name: small, steps: 1, overrides: {size: 64}}, {name: large, overrides: {size: 96}}]"
    config = read_config([*options, f'vlmgym.games=[{{game: "2048", by: step, stages: {stages}}}]'])
    data = config.data
    for files, count in (("training", data.train_max_samples), ("validation", data.val_max_samples)):
        first, second = (GameDataset(files, data, count) for _ in range(2))
        snapshots = [first[index]["extra_info"]["snapshot"] for index in range(count)]
        assert snapshots == [second[index]["extra_info"]["snapshot"] for index in range(count)]
        assert len(set(snapshots)) == count
        sizes = [Episode.restore(snapshot).images[0].shape[0] for snapshot in snapshots]
        assert sizes == ([64] * 4 + [96] * 4 if files == "training" else [96] * 2)


def test_check(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*options, "--check"])
    assert capsys.readouterr().out.endswith("no problems found\n")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.train_batch_size=2", "train_batch_size"),
        ("actor_rollout_ref.rollout.m=8", "Could not override 'actor_rollout_ref.rollout.m'"),
        ("vlmgym.games=[{game: chess}]", "chess"),
        ("vlmgym.curriculum=three-games", "by step or by episode"),
        ("vlmgym.play={chat: false, history: 1}", "set vlmgym.play.chat=true"),
        ("data.max_prompt_length=100", r"prompts have up to \d+ tokens, but data.max_prompt_length is 100"),
        ("actor_rollout_ref.model.path=no/model", "model no/model was not found"),
    ],
)
def test_problems(options: list[str], setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(read_config([*options, setting]))
