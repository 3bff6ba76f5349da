"""Training checks that log-probabilities depend on the images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.in_training.runs import NO_EPISODES, QUICK, SMALL, curve
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.config import read_config
from vlmgym.training.engine.qwen_vl import QwenVL
from vlmgym.training.run import TrainingRun
from vlmgym.training.signal import image_swaps
from vlmgym.training.train import run_training

Run = Callable[[str], Path]


def test_first_step_measures_how_much_images_matter(finished: Run) -> None:
    first, *others = curve(finished("grpo"))
    assert first["sight/logprob_gap"] > 0
    assert not any("sight/logprob_gap" in row for row in others)
    assert not any("sight/logprob_gap" in row for row in curve(finished("blank"))), "grey images are all the same"


def test_training_stops_if_the_model_does_not_see_its_images(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixel_values = QwenVL.pixel_values
    monkeypatch.setattr(QwenVL, "pixel_values", lambda self, patches: torch.zeros_like(pixel_values(self, patches)))
    args = [*QUICK, *SMALL, *NO_EPISODES, "--model", str(model), "--output-dir", str(tmp_path / "run")]
    config = read_config([*args, "--processes", "1"])
    with pytest.raises(TrainingError, match="the model does not see its images"):
        run_training(TrainingRun.new(config), config)


def test_images_are_swapped_for_others_of_the_same_shapes() -> None:
    assert image_swaps(["a", "a", "b", "a", "b"], [1, 1, 2, 3, 4]) == {0: 3, 1: 3, 2: 4, 3: 0, 4: 2}
    assert image_swaps(["a", "b"], [1, 2]) == image_swaps(["a", "a"], [1, 1]) == {}
