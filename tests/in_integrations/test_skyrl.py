"""SkyRL-gym environments, called as SkyRL's generator calls them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import skyrl_gym
from datasets import load_dataset

from vlmgym import RewardConfig, make_dataset
from vlmgym.errors import UsageError
from vlmgym.integrations.skyrl import GameEnvironment

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_with_skyrl.py"
REWARD = RewardConfig(illegal=-1.0, unparsable=-2.0)


def play(extras: dict[str, Any], responses: list[str]) -> Any:
    """Play an episode; return the environment."""
    environment = skyrl_gym.make("vlmgym", env_config={}, extras=extras)
    environment.init([{"role": "user", "content": "from the dataset"}])
    assert [environment.step(response)["done"] for response in responses] == [*[False] * (len(responses) - 1), True]
    return environment


def test_metrics_are_averaged() -> None:
    rows = make_dataset("2048", 2, max_turns=2, reward=REWARD, size=64)
    played = [play({"snapshot": row["snapshot"]}, ["none", "<answer>down</answer>"]) for row in rows]
    metrics = GameEnvironment.aggregate_metrics([environment.get_metrics() for environment in played])
    assert metrics["turns"] == metrics["played"] + metrics["illegal"] + metrics["unparsable"] == 2
    assert metrics["unparsable"] == 1


def test_rows_without_snapshots_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no column snapshot.*make_dataset"):
        skyrl_gym.make("vlmgym", env_config={}, extras={"seed": 0})


def test_repeated_turns_are_refused() -> None:
    (row,) = make_dataset("pairs", 1)
    with pytest.raises(UsageError, match="history=0 or chat=True"):
        skyrl_gym.make("vlmgym", env_config={}, extras={"snapshot": row["snapshot"]})


def test_a_lower_turn_limit_of_the_generator_is_refused() -> None:
    (row,) = make_dataset("2048", 1, max_turns=3, size=64)
    with pytest.raises(UsageError, match=r"generator\.max_turns must be at least .* 3"):
        skyrl_gym.make("vlmgym", env_config={}, extras={"snapshot": row["snapshot"], "max_turns": 1})


def test_the_example_writes_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--folder", str(tmp_path), "--only-data", "--rows", "3", "--turns", "2", "--size", "64"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    files = {split: str(tmp_path / f"{split}.parquet") for split in ("train", "validation")}
    rows = load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows[split]) for split in files} == {"train": 3, "validation": 64}
    for row in (rows["train"][0], rows["validation"][0]):
        assert row.pop("env_class") == "vlmgym"
        assert [each["role"] for each in row.pop("prompt")] == ["system", "user"]
        play({**row, "max_turns": 2}, ["none"] * 2)
