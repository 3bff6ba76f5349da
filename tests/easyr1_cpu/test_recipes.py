"""The recipes G0 and G1, and presets of local training, against EasyR1's configurations."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.easyr1_cpu.rollout_workers import CONFIGS, ROOT
from tests.easyr1_cpu.test_configurations import write_cifar10
from vlmgym.training.config import read_config as read_local_config
from vlmgym.training.easyr1.config import RunConfig, preflight, read_config
from vlmgym.training.easyr1.settings import Section

GAMES = ("2048", "shisensho", "shisensho_cifar10", "swap", "mixed")


def config_of(*names: str) -> RunConfig:
    return read_config([str(CONFIGS / f"{name}.yaml") for name in ("base", *names)])


@pytest.mark.parametrize(
    ("game", "recipe"), [("2048", ("g0",)), *((game, ("g0", "g1")) for game in GAMES)], ids=lambda value: "".join(value)
)
def test_configurations_have_no_problems(qwen3: Path, tmp_path: Path, game: str, recipe: tuple[str, ...]) -> None:
    config = config_of(game, *recipe)
    if game == "shisensho_cifar10":
        write_cifar10(tmp_path)
        config.vlmgym["games"][0]["overrides"]["data"] = str(tmp_path)
    config.worker.actor.model.model_path = str(qwen3)
    assert preflight(config, machine=False)[0] == []
    reward = Section.read(config.vlmgym).reward
    assert (reward.game_weight, reward.format_weight, reward.perception_weight) == (1, 1, "g1" in recipe)


@pytest.mark.parametrize("script", ["g0.sh", "g1.sh"])
def test_check_without_a_gpu(qwen3: Path, tmp_path: Path, script: str) -> None:
    """`--check` reports only problems of the machine, and starts nothing."""
    command = ["bash", str(ROOT / "training" / "scripts" / script), "2048", "--check"]
    variables = {**os.environ, "MODEL": str(qwen3), "OUT": str(tmp_path / "out"), "CUDA_VISIBLE_DEVICES": ""}
    variables |= {"STAGES": "data", "EPISODES": "1"}  # without --check, this stage would succeed here
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 2
    assert "billion parameters need at least" in done.stdout
    problems = [line for line in done.stderr.splitlines() if line.startswith("- ")]
    assert any("trainer.n_gpus_per_node=4, but this machine has 0: set GPUS" in problem for problem in problems)
    assert not [problem for problem in problems if "vlmgym." in problem and "rollout_workers" not in problem]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("preset", ["1x24gb", "1x80gb"])
@pytest.mark.parametrize("name", [*GAMES, "geospot", "nlvr2", "vqa", "caption"])
def test_presets_for_real_models_have_the_rewards_of_easyr1(preset: str, name: str) -> None:
    section = Section.read(config_of(name).vlmgym)
    games = ["--curriculum", section.curriculum] if section.curriculum else ["--games", section.games[0].game]
    assert read_local_config(["--preset", preset, "--model", "any", *games]).reward == section.reward
