"""Options and page of benchmarks.prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.prediction import (
    ARMS,
    BOTH,
    GAMES,
    NONE,
    PERCEPTION,
    PREDICTION,
    REWARDS,
    arm_args,
    base_args,
    write_page,
)
from vlmgym.training.config import read_config


@pytest.mark.parametrize("name", GAMES)
def test_runs_differ_only_in_their_rewards(name: str) -> None:
    base = read_config(base_args(name))
    (game,) = base.make_curriculum().games
    assert game.asks_prediction
    for arm in REWARDS:
        config = read_config(arm_args(name, 3, arm))
        assert config.make_curriculum().games == (game,)
        assert (config.seed, config.sft.steps, config.reward.shaping) == (3, 0, "sign")
        weights = (config.reward.perception_weight, config.reward.prediction_weight)
        assert weights == (0.5 * (arm in (PERCEPTION, BOTH)), 0.5 * (arm in (PREDICTION, BOTH)))


def test_page_pools_the_seeds_with_all_rewards(tmp_path: Path) -> None:
    results = tmp_path / "prediction"
    results.mkdir()
    for seed, arms in ((0, ARMS), (1, ARMS), (2, (NONE,))):
        for arm in arms:
            right = [1, int(arm == BOTH), 0, seed % 2]
            skills = {
                "right": right,
                "legal": [1, 1, 0, 1],
                "perception": [1.0] * 4,
                "prediction": [0.5, 1.0, 0.0, 0.0],
            }
            (results / f"2048-{seed}-{arm}.json").write_text(json.dumps({"sampled": skills, "greedy": skills}))
    page = write_page(results).read_text(encoding="utf-8")
    assert "| both | 62.5% (" in page
    assert "| 75.0% | 100.0% | 50.0% | 50.0% |" in page, "predictions count after legal answers"
    assert "| 2048 on 3x3 | both | +25.0% (" in page
    assert "| 2048 on 3x3 | 2 |" in page.split("## Not run")[1]
    assert (tmp_path / "prediction.png").stat().st_size > 1000
