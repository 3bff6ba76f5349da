"""Episodes that end with an error are left out of training; others, and the run, are not affected."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.broken_game import Broken
from tests.in_training.runs import QUICK, curve, fail, main, rollouts
from vlmgym.sandbox import registry

SFT = ("--settings", "sft.batch_size=8", "--settings", "sft.gate=0")
FEW = ("--size", "96", "--steps", "2", "--evaluation.episodes", "2")


@pytest.mark.parametrize("method", [(), ("--algorithm", "ppo")], ids=["grpo", "ppo"])
def test_bugs_of_games(
    method: tuple[str, ...],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(registry._registered, "broken-v0", Broken)
    args = [*QUICK, "--model", str(model), "--games", "broken", *FEW, *method, "--output-dir", str(tmp_path)]
    args += ["--states.moves", "0", "0", "--max-turns", "3", "--batch-size", "12"]
    main([*args, *SFT, "--sft.steps", "2", "--sft.expert", "rule"])
    episodes, steps = rollouts(tmp_path), curve(tmp_path)
    failed = [episode for episode in episodes if episode.status == "error"]
    assert 0 < len(failed) < len(episodes)
    assert 24 - len(episodes) + len(failed) == sum(step["errors"] for step in steps)
    assert {episode.score for episode in failed} == {None}
    assert "broken-v0" in failed[0].end_reason
    assert "broken step" in failed[0].end_reason
    rewards = [sum(turn.reward.total for turn in episode.turns) for episode in episodes if episode.status != "error"]
    assert json.loads((tmp_path / "result.json").read_text())["final_reward"] == pytest.approx(np.mean(rewards))
    assert "of 12 episodes of step 1 ended as errors, the first: broken-v0, seed" in capsys.readouterr().err


def test_steps_without_any_episode_end_the_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(registry._registered, "broken-v0", type("Broken", (Broken,), {"draws": False}))
    args = [*QUICK, "--model", str(model), "--games", "broken", *FEW, "--states.moves", "0", "0"]
    args += ["--evaluation.states", "0", "--evaluation.episodes", "0", "--output-dir", str(tmp_path)]
    code, message = fail(capsys, *args)
    assert code == 1
    assert "all episodes of step 1 ended as errors, the first: broken-v0, seed" in message


def test_questions_with_special_tokens(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "image.png")
    names = ("<|image_pad|>", "<|im_end|>", "a cat", "a dog", "a car", "a cup")
    rows = [
        {"image": "image.png", "question": f"Is {name} here ({number})?", "answer": "yes"}
        for number, name in enumerate(names * 6)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = [*QUICK, "--model", str(model), "--games", "vqa", "--config", f"data={tmp_path / 'data.jsonl'}", *FEW]
    args += ["--batch-size", "24", "--evaluation.episodes", "0", "--evaluation.states", "8"]
    args += ["--states.validation-fraction", "0.3", "--output-dir", str(tmp_path / "run")]
    main([*args, *SFT, "--sft.steps", "1", "--sft.expert", "oracle"])
    reasons = [episode.end_reason for episode in rollouts(tmp_path / "run") if episode.status == "error"]
    assert set(names[:2]) == {name for name in names for reason in reasons if name in reason}
    assert any(episode.score is not None for episode in rollouts(tmp_path / "run"))
    assert "ended as errors, the first: the prompt contains <|im" in capsys.readouterr().err
