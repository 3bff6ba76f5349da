"""Training steps of each model family, and model types that no test covers; test_actor.py has other tests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, curve, main, read
from tests.in_training.tiny import make_actor, make_checkpoint, make_move_model, make_samples
from vlmgym.errors import UsageError
from vlmgym.training.config import Kind, read_config
from vlmgym.training.engine import actor as actor_module
from vlmgym.training.engine.families import Family
from vlmgym.training.run import TrainingRun
from vlmgym.training.trainer import Trainer


def changed_layers(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> set[str]:
    """Return the numbers of the language model's layers whose weights differ."""
    names = (name for name in before if "vis" not in name and not torch.equal(before[name], after[name]))
    return {found[1] for name in names if (found := re.search(r"layers\.(\d)", name))}


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_step_of_grpo_changes_every_layer(kind: Kind, lora: int, tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", kind)
    args = [*QUICK, "--model", str(model), "--lora", str(lora), "--update.kl-coef", "0.1", "--device", "cpu"]
    trainer = Trainer(read_config(args), TrainingRun(tmp_path / "run"))
    trainer.keep_reference()
    samples = make_samples(trainer.actor, (3, 5, 1, 4))
    for number, sample in enumerate(samples):
        sample.advantages = np.full(len(sample.response), (-1.0) ** number)
    trainer.fill_in_logprobs(samples)
    metrics = trainer.update(samples)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["grad_norm"] > 0
    trainer.actor.save(tmp_path / "trained")
    weights = [load_file(folder / "model.safetensors") for folder in (model, tmp_path / "trained")]
    assert changed_layers(*weights) == {"0", "1", "2"}


def test_a_run_trains_qwen3_5(tmp_path: Path) -> None:
    model, run = make_move_model(tmp_path / "model", "qwen3_5"), tmp_path / "run"
    args = [*QUICK, *SMALL, *NO_EPISODES, "--model", str(model), "--batch-size", "24", "--steps", "2"]
    main([*args, "--output-dir", str(run)])
    assert max(row["grad_norm"] for row in curve(run)) > 0
    weights = [load_file(folder / "model.safetensors") for folder in (model, run / "model")]
    assert changed_layers(*weights) == {"0", "1", "2"}
    assert read(run / "model" / "config.json")["model_type"] == "qwen3_5"


def test_model_types_without_a_test_are_compared_with_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """InternVL stands for a model type that no test covers."""
    model = make_checkpoint(tmp_path, "internvl")
    monkeypatch.setattr(actor_module, "get_args", lambda _: ())
    make_actor(model)
    right = Family.inputs

    def wrong(self: Family, *args: object) -> dict[str, torch.Tensor]:
        inputs = right(self, *args)  # type: ignore[arg-type]
        return {**inputs, "position_ids": inputs["position_ids"] * 2}

    monkeypatch.setattr(Family, "inputs", wrong)
    with pytest.raises(UsageError, match=r"log-probabilities of the model type internvl differ .* docs/models\.md"):
        make_actor(model)
