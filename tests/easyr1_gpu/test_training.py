"""Two steps of training in each mode, in two processes, with FSDP, vLLM and the settings of training/configs.

With VLMGYM_TEST_GPUS=4, they run on GPUs, with one process on each; training/scripts/gpu_smoke.sh sets it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from tests.easyr1_cpu.models import make_beginner
from tests.easyr1_runs import evaluate_exported, kill_after_checkpoint, last_step, metrics, records
from tests.training import ROOT, VARIABLES, training_python
from vlmgym.training.config import TinySize
from vlmgym.training.easyr1.export import export

CONFIGS, SMALL = ROOT / "training" / "configs", ROOT / "tests" / "easyr1_gpu" / "small.yaml"
GPUS = os.environ.get("VLMGYM_TEST_GPUS")
MODES: dict[str, tuple[str, ...]] = {
    "grpo": ("worker.rollout.tensor_parallel_size=2",),
    "lora": ("worker.actor.model.lora.rank=8",),
    "episodes": (
        *("worker.rollout.tensor_parallel_size=2", "vlmgym.play.max_turns=2", "vlmgym.rollout_workers=1"),
        "vlmgym.importance_cap=2",
    ),
    "ppo": ("worker.rollout.n=1",),
}
"""Further settings of each mode."""


@pytest.fixture(scope="module", params=MODES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with its model in the folder `model` next to it. `ppo` was killed after a step, and resumed."""
    folder = tmp_path_factory.mktemp("runs")
    mode: str = request.param
    # Heads of attention: two, so that two processes can split them.
    size = TinySize(tied=False, vision_hidden=64)
    make_beginner(folder / "model", "qwen2_5_vl" if mode == "grpo" else "qwen3_vl", size)
    files = [CONFIGS / "base.yaml", CONFIGS / "2048.yaml", CONFIGS / f"{mode}.yaml", SMALL]
    settings = [f"worker.actor.model.model_path={folder / 'model'}", f"trainer.save_checkpoint_path={folder / mode}"]
    arguments = [*(str(file) for file in files if file.exists()), *MODES[mode], *settings]
    if mode == "ppo":
        kill_after_checkpoint(command(folder, [*arguments, "trainer.max_steps=50"]), folder / mode, 1)
    environment = {**os.environ, **VARIABLES}
    subprocess.run(command(folder, arguments), cwd=ROOT, env=environment, check=True, timeout=3000)
    return folder / mode


def command(folder: Path, arguments: list[str]) -> list[str]:
    if GPUS:
        return [sys.executable, "-m", "vlmgym.training.easyr1", *arguments, f"trainer.n_gpus_per_node={GPUS}"]
    request = folder / "request.json"
    request.write_text(json.dumps({"models": None, "runs": [arguments]}))
    return [sys.executable, "-m", "tests.easyr1_gpu.fit", str(request)]


def test_two_steps(run: Path) -> None:
    steps = metrics(run)
    assert [row["step"] for row in steps] == [1, 2]
    assert last_step(run) == 2
    assert all(0 < row["actor/grad_norm"] < 1e3 for row in steps)
    assert len(records(run, "validation_000002.jsonl")) == 2
    # Four prompts a step, or two of episodes with two turns; a resumed run continues with the next prompts.
    seeds = [episode.seed for episode in records(run, "step_000002.jsonl")]
    assert seeds == list(range(seeds[0], 2 * seeds[0]))
    assert seeds[0] == {"ppo": 4, "episodes": 8}.get(run.name, 16)


def test_vllm_samples_from_the_trained_distribution(run: Path) -> None:
    """Also in the second step, after the first has changed the weights. Both compute in bfloat16."""
    for row in metrics(run):
        assert row["mismatch/kl"] < 1e-4
        assert row["mismatch/ess"] > 0.99


@pytest.mark.parametrize("run", ["grpo"], indirect=True)
def test_reference_keeps_the_initial_weights(run: Path) -> None:
    first, second = metrics(run)
    assert first["actor/kl_loss"] < 1e-5
    assert second["actor/kl_loss"] > 2 * second["mismatch/kl"], "vLLM has the trained weights, not the initial ones"


@pytest.mark.parametrize("run", ["ppo"], indirect=True)
def test_the_critic_learns(run: Path) -> None:
    first, second = metrics(run)
    assert first["critic/values/mean"] == 0.0 != second["critic/values/mean"]


@pytest.mark.parametrize("run", ["episodes"], indirect=True)
def test_episodes_have_several_turns(run: Path) -> None:
    episodes = records(run, "step_000002.jsonl")
    assert {len(episode.turns) for episode in episodes} == {2}
    assert metrics(run)[-1]["episode/rows"] == 2 * len(episodes)
    invalid = [episode.turns for episode in episodes if episode.turns[0].feedback]
    assert invalid
    assert all("was not played" in later.prompt for _, later in invalid)


@pytest.mark.parametrize("run", ["ppo"], indirect=True)
def test_a_killed_and_resumed_run_is_exported_served_and_evaluated(run: Path, tmp_path: Path) -> None:
    """The vLLM of .venv-train serves; it must be the build for CPUs."""
    setup = training_python().parents[1] / ".vlmgym-setup"
    if not GPUS and "cpu" not in setup.read_text().split():
        pytest.skip("the vLLM of .venv-train needs a GPU")
    export = [sys.executable, "-m", "vlmgym.training.easyr1.export"]
    trained, baseline = evaluate_exported(export, run / "global_step_2", run.parent / "model", tmp_path)
    turns = [[turn for episode in each.episodes for turn in episode.turns] for each in (trained, baseline)]
    assert [len(played) for played in turns] == [2, 2]
    assert all(turn.response.startswith("<answer>") for played in turns for turn in played)


def test_export(run: Path, tmp_path: Path) -> None:
    export(run / "global_step_2", tmp_path / "model", torch.float32)
    trained, initial = (
        dict(AutoModelForImageTextToText.from_pretrained(folder).named_parameters())
        for folder in (tmp_path / "model", run.parent / "model")
    )
    if run.name == "lora":  # EasyR1 keeps frozen weights in bfloat16
        initial = {name: weights.bfloat16().float() for name, weights in initial.items()}
    changed = {name for name, weights in trained.items() if not torch.equal(weights, initial[name])}
    assert changed
    assert run.name != "lora" or all(".layers." in name and "visual" not in name for name in changed)
