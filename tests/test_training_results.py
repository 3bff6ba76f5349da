"""`result.json` is computed from records, and files of steps after a checkpoint are set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vlmgym.cli.main import main
from vlmgym.runs.files import write_file
from vlmgym.statistics import wilson
from vlmgym.training.records import FINAL_EPISODES, last_rewards, set_aside, validation_summary, write_result


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Records of 60 questions, each answered at random in a single turn."""
    out = tmp_path_factory.mktemp("runs") / "run"
    play = ["eval", "scenes-statements", "--policy", "random", "--episodes", "60", "--size", "64", "--workers", "0"]
    main([*play, "--videos", "0", "--no-report", "--output-dir", str(out)])
    return (out / "episodes.jsonl").read_text().splitlines(keepends=True)


def test_final_reward_spans_steps(lines: list[str], tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (tmp_path / f"step_{step:06d}.jsonl").write_text("".join(lines))
    rewards = [json.loads(line)["turns"][0]["reward"]["total"] for line in lines]
    assert 0 < sum(rewards) < len(rewards)
    assert last_rewards(tmp_path, 2) == [*rewards, *rewards][-FINAL_EPISODES:]
    assert last_rewards(tmp_path, 1) == rewards
    assert last_rewards(tmp_path, 0) == []


def test_validation_has_an_interval(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "validation_000025.jsonl").write_text("".join(lines))
    right = sum(json.loads(line)["score"] for line in lines)
    found = validation_summary(tmp_path, 25)
    assert found == {
        "episodes": {
            "scenes-statements-v0": {"score": right / 60, "score_ci": wilson(round(right), 60), "episodes": 60}
        }
    }
    assert validation_summary(tmp_path, 0) is None


def test_result_is_written_and_replaced(tmp_path: Path) -> None:
    for steps in (3, 5):
        counts = {"rewards": [0.0] * 50 + [1.0] * 100, "steps": steps, "episodes": 8 * steps, "seconds": 2.0}
        paths = {"metrics": tmp_path, "missing": tmp_path / "missing"}
        validation: dict[str, Any] = {"before": None, "after": {"episodes": {}}}
        write_result(tmp_path, **counts, validation=validation, paths=paths)  # type: ignore[arg-type]
        assert json.loads((tmp_path / "result.json").read_text()) == {
            "final_reward": 1.0,
            "final_episodes": 100,
            "total_steps": steps,
            "total_episodes": 8 * steps,
            "validation": validation,
            "seconds": 2.0,
            "paths": {"metrics": str(tmp_path)},
        }


def test_later_steps_are_set_aside_each_time(tmp_path: Path) -> None:
    """Files that do not belong to a later step stay, such as the user's files."""

    def train(*steps: int) -> None:
        for step in steps:
            write_file(tmp_path / f"global_step_{step}" / "vlmgym.json", f"{step}".encode())
            write_file(tmp_path / "rollouts" / f"step_{step:06d}.jsonl", b"")
        write_file(tmp_path / "curve.jsonl", "".join(f'{{"step": {step}}}\n' for step in steps).encode())

    train(1, 2, 10)
    (tmp_path / "notes.txt").write_text("mine")
    assert set_aside(tmp_path, 10) is None
    for name in ("after_step_000002", "after_step_000002-2"):
        aside = set_aside(tmp_path, 2)
        assert aside == tmp_path / name
        assert (aside / "global_step_10" / "vlmgym.json").read_text() == "10"
        assert (aside / "rollouts" / "step_000010.jsonl").exists()
        assert (aside / "curve.jsonl").read_text() == (tmp_path / "curve.jsonl").read_text()
        assert sorted(path.name for path in tmp_path.glob("global_step_*")) == ["global_step_1", "global_step_2"]
        assert (tmp_path / "notes.txt").read_text() == "mine"
        train(1, 2, 10)
