"""GRPO in one file (examples/grpo.py): its log-probabilities, its learning, and episodes of several turns."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.in_training.tiny import make_actor
from vlmgym import make_episodes
from vlmgym.evaluation import evaluate
from vlmgym.policies import make_policy
from vlmgym.policies.transformers import TransformersOptions
from vlmgym.training.engine.encoding import TrainSample

SCRIPT = Path(__file__).parents[2] / "examples" / "grpo.py"
SMALL = '{"size": 96, "rows": 3, "columns": 3, "goal": 16}'


@pytest.fixture
def run_example(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs the script with options and returns its variables."""

    def run(*args: str) -> dict[str, Any]:
        common = ("--model", str(model), "--config", SMALL, "--moves", "10", "--tokens", "16", "--micro-batch", "64")
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *common, "--output-dir", str(tmp_path / "trained"), *args])
        return runpy.run_path(str(SCRIPT), run_name="__main__")

    return run


def test_log_probabilities_equal_those_of_the_trainer(model: Path, run_example: Any) -> None:
    script, actor = run_example("--steps", "0", "--temperature", "0.7"), make_actor(model)
    conversations, samples = [], []
    for number, episode in enumerate(make_episodes("2048", 3, rows=3, columns=3, goal=16, size=96)):
        conversations.append(episode.messages("pil"))
        response = actor.encoder.tokens(f"<answer>{'up ' * number}down</answer>")
        prompt = actor.encoder.encode(episode.prompt, episode.images)
        samples.append(TrainSample(prompt, response))
    with torch.no_grad():
        ours, mask = script["log_probabilities"](conversations, [torch.tensor(each.response) for each in samples])
        theirs = actor.compute_logprobs(samples, 0.7)
    assert torch.equal(mask.bool(), theirs.mask)
    # The script loads the fast image processor, which resizes with other rounding.
    torch.testing.assert_close(ours * mask, theirs.logprobs, atol=2e-2, rtol=0)


def test_the_reward_rises(run_example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_example("--steps", "18", "--lr", "1e-3")
    rewards = [float(reward) for reward in re.findall(r"reward (\S+),", capsys.readouterr().out)]
    assert len(rewards) == 18
    assert np.mean(rewards[-6:]) > np.mean(rewards[:6]) + 0.15
    options = TransformersOptions(model=str(tmp_path / "trained"), device="cpu", max_tokens=16)
    (record,) = evaluate("2048", make_policy("transformers", options), 1, max_turns=2)
    assert record.turns[0].response.startswith("<answer>")


def test_episodes_may_have_several_turns(run_example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    script = run_example("--turns", "3", "--steps", "2", "--states", "2", "--group", "4", "--lr", "1e-4")
    turns = [number for number, _, _ in script["samples"]]
    assert max(map(turns.count, range(8))) == 3
    assert len(re.findall(r"reward \S+, gradient norm (?!0\.00)", capsys.readouterr().out)) == 2
