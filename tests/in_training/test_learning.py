"""A tiny model learns a custom game: perception by supervised fine-tuning, then decisions by GRPO."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.in_training.runs import main
from vlmgym.training.config import read_config
from vlmgym.training.engine.actor import Actor
from vlmgym.training.validation import validate, validation_episodes

HERE = Path(__file__).parent
ARGS = ["--preset", str(HERE / "learning.toml"), "--seed", "1"]
CHANCE = 0.5
"""Accuracy without looking at the image."""


@pytest.mark.slow
def test_grpo_improves_answers_that_depend_on_the_image(tmp_path: Path) -> None:
    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    importlib.import_module("lamps")

    run = tmp_path / "run"
    main([*ARGS, "--output-dir", str(run)])
    result = json.loads((run / "result.json").read_text())
    before, after = (result["validation"][when]["states"] for when in ("before", "after"))
    assert after["reward_ci"][0] > before["reward_ci"][1] > before["reward"], "nothing was learned"
    assert after["reward_ci"][0] > CHANCE + 0.1

    config = read_config(ARGS)
    curriculum = config.make_curriculum()
    episodes = validation_episodes(config, curriculum, curriculum.begin(), config.evaluation.states)
    blind = validate(Actor(run / "model", config.model), config, episodes, "shuffled")
    assert blind.reward_ci is not None
    assert blind.reward_ci[1] < after["reward_ci"][0], "answers do not depend on the image"
