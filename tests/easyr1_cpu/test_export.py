"""Export of EasyR1 checkpoints."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForImageTextToText
from verl.trainer.config import DataConfig
from verl.workers.config import ModelConfig

from tests.easyr1_cpu import sharded
from tests.easyr1_cpu.rollout_workers import ROOT, SECTION, a_prompt, encoder_of
from vlmgym.errors import UsageError
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import OutputError
from vlmgym.training.easyr1.batch import load_processors
from vlmgym.training.easyr1.config import RunConfig, trained_record
from vlmgym.training.easyr1.export import export, whole_weights


def test_export(qwen3: Path, tmp_path: Path) -> None:
    actor = tmp_path / "global_step_3" / "actor"
    actor.mkdir(parents=True)
    model = AutoModelForImageTextToText.from_pretrained(qwen3)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    for part in (model.config, model.generation_config, load_processors(ModelConfig(str(qwen3)), DataConfig())[1]):
        part.save_pretrained(actor / "huggingface")
    trained = trained_of(actor.parent)
    export(actor.parent, tmp_path / "out", torch.float32)
    assert TrainedRecord.read(tmp_path / "out") == trained
    again = AutoModelForImageTextToText.from_pretrained(tmp_path / "out")
    for (name, ours), theirs in zip(again.named_parameters(), model.parameters()):
        assert torch.equal(ours, theirs), name
    assert encoder_of(tmp_path / "out").encode(*a_prompt())["input_ids"].any()
    with pytest.raises(UsageError, match="has files"):
        export(actor.parent, tmp_path / "out")
    (actor / "model_world_size_1_rank_0.pt").rename(actor / "model_world_size_2_rank_0.pt")
    with pytest.raises(UsageError, match="lacks model_world_size_2_rank_1"):
        export(actor.parent, tmp_path / "other")
    with pytest.raises(UsageError, match="is not an EasyR1 checkpoint"):
        export(tmp_path, tmp_path / "other")
    half = (actor / "model_world_size_2_rank_0.pt").read_bytes()[:5000]
    (actor / "model_world_size_2_rank_0.pt").unlink()
    (actor / "model_world_size_1_rank_0.pt").write_bytes(half)
    with pytest.raises(UsageError, match="cannot read"):
        export(actor.parent, tmp_path / "other")


def trained_of(folder: Path) -> TrainedRecord:
    """Write the file that says what a checkpoint was trained on; return its record."""
    curriculum = SECTION.make_curriculum()
    trained = trained_record(RunConfig(), SECTION, curriculum, curriculum.begin(), 3, "template")
    trained.write(folder)
    return trained


class Code:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_export_runs_no_pickled_code(tmp_path: Path) -> None:
    torch.save({"weight": Code(tmp_path / "ran")}, tmp_path / "model_world_size_1_rank_0.pt")
    with pytest.raises(UsageError, match="has more than weights, or is damaged"):
        whole_weights(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_export_to_a_full_disk(qwen3: Path, tmp_path: Path) -> None:
    actor = tmp_path / "actor"
    (actor / "huggingface").mkdir(parents=True)
    model = AutoModelForImageTextToText.from_pretrained(qwen3)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    model.config.save_pretrained(actor / "huggingface")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # maximum file size
    try:
        with pytest.raises(OutputError, match=f"cannot write {tmp_path / 'out'}"):
            export(actor, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def checkpoints(qwen3: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sharded checkpoints saved by two processes, each with half of the weights."""
    folder = tmp_path_factory.mktemp("sharded") / "checkpoints"
    command = [sys.executable, "-m", "tests.easyr1_cpu.sharded", str(qwen3), str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.parametrize("kind", sharded.POLICIES)
def test_export_of_shards(qwen3: Path, checkpoints: Path, tmp_path: Path, kind: str) -> None:
    part = torch.load(checkpoints / kind / "actor" / "model_world_size_2_rank_1.pt", weights_only=False)
    assert any(isinstance(weights, DTensor) for weights in part.values()), "not sharded"
    export(checkpoints / kind, tmp_path / "out", torch.float32)
    ours = dict(AutoModelForImageTextToText.from_pretrained(tmp_path / "out").named_parameters())
    saved = sharded.make_model(str(qwen3), kind)
    theirs = dict((saved.merge_and_unload() if kind == "lora" else saved).named_parameters())
    start = dict(AutoModelForImageTextToText.from_pretrained(qwen3).named_parameters())
    assert ours.keys() == theirs.keys()
    for name, weights in theirs.items():
        assert torch.allclose(ours[name], weights, atol=1e-6), name
    changed = {name for name, weights in ours.items() if not torch.equal(weights, start[name])}
    assert changed
    assert kind == "whole" or not any("visual" in name for name in changed)


def test_saved_critic(qwen3: Path, checkpoints: Path) -> None:
    """EasyR1 saves a generation config with each model, although a critic does not generate."""
    saved = whole_weights(checkpoints / "critic" / "actor")
    critic = sharded.make_model(str(qwen3), "critic")
    assert torch.equal(saved["score.weight"], critic.score.weight)
    assert saved.keys() == critic.state_dict().keys()
