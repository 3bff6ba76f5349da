"""Short EasyR1 runs on the CPU in all modes; tests/easyr1_cpu tests the individual parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.easyr1_runs import evaluate_exported, kill_after_checkpoint, last_step, metrics, records
from tests.training import EASYR1, ROOT, easyr1_python, run_training, training_python

pytestmark = pytest.mark.slow
FILES = ROOT / "tests" / "easyr1_cpu"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a three-step run in each mode, and a run that learns.

    Importing EasyR1's dependencies takes most of the time, so one process does all runs. It is killed during the last
    run, PPO. A second process resumes this run, and resumes a copy of the run `state` from its second step.
    """
    easyr1_python()
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, list[str]] = {
        "state": ["trainer.logger=[vlmgym,tensorboard]"],
        "episodes": [str(FILES / "episodes.yaml")],
        "learns": [str(FILES / "learn.yaml")],
        "ppo": [str(FILES / "ppo.yaml")],
    }
    for name, args in runs.items():
        model = "beginner" if name == "learns" else "tiny"
        args.insert(0, str(FILES / "tiny.yaml"))
        args.append(f"worker.actor.model.model_path={folder / model}")
        args.append(f"trainer.save_checkpoint_path={folder / name}")
    *whole, last = runs.values()
    first = folder / "first.json"
    first.write_text(json.dumps({"models": str(folder), "runs": [*whole, [*last, "trainer.max_steps=50"]]}))
    kill_after_checkpoint([str(easyr1_python()), "-m", "tests.easyr1_cpu.fit", str(first)], folder / "ppo", step=2)
    shutil.copytree(folder / "state", folder / "again")
    more = [f"trainer.save_checkpoint_path={folder / 'again'}", "trainer.max_steps=4"]
    more.append(f"trainer.load_checkpoint_path={folder / 'again' / 'global_step_2'}")
    rest = folder / "again.json"
    rest.write_text(json.dumps({"models": None, "runs": [last, [*runs["state"], *more]]}))
    run_training("-m", "tests.easyr1_cpu.fit", str(rest), environment=EASYR1, timeout=900)
    return folder


@pytest.mark.parametrize("mode", ["state", "episodes", "ppo"])
def test_every_mode_logs_three_steps(runs: Path, mode: str) -> None:
    steps = metrics(runs / mode)
    assert [row["step"] for row in steps] == [1, 2, 3]
    for row in steps:
        parts = [row[f"reward/{part}"] for part in ("total", "game", "format", "perception")]
        assert all(isinstance(part, float) for part in parts)
        assert row["reward/played"] + row["reward/illegal"] + row["reward/unparsable"] == pytest.approx(1.0)
        assert row["actor/grad_norm"] >= 0.0
    assert [row["step"] for row in steps if row.get("sight/logprob_gap", 0) > 0] == [1]
    assert (runs / mode / "curve.png").stat().st_size > 1000
    assert (runs / mode / "rollouts" / "run.json").exists()


def test_tensorboard_gets_every_metric(runs: Path) -> None:
    written = b"".join(file.read_bytes() for file in (runs / "state" / "tensorboard").rglob("events.out.*"))
    for name, times in (("reward/total", 3), ("actor/grad_norm", 3), ("val/score", 1)):
        assert written.count(name.encode()) == times


def test_rollouts_are_records(runs: Path) -> None:
    responses = records(runs / "state", "step_000002.jsonl")
    assert [response.seed for response in responses] == list(range(8, 16)), "four states, two responses each"
    assert responses[0].turns[0].state == responses[1].turns[0].state != responses[2].turns[0].state
    assert responses[0].turns[0].prompt_tokens
    step = metrics(runs / "state")[1]
    assert step["signal/success"] == pytest.approx(np.mean([response.turns[0].is_rewarded for response in responses]))
    assert step["signal/success"] <= step["signal/pass_at_n"] <= 1
    episodes = records(runs / "episodes", "step_000001.jsonl")
    assert len(episodes) == 4
    assert max(len(episode.turns) for episode in episodes) == 3
    assert all(turn.reward.total == -1.0 for turn in episodes[0].turns if turn.outcome == "unparsable")


def test_validation_plays_whole_episodes(runs: Path) -> None:
    last = metrics(runs / "state")[-1]
    played = records(runs / "state", "validation_000003.jsonl")
    assert [episode.seed for episode in played] == [1_000_000, 1_000_001]
    assert last["val/score"] == pytest.approx(sum(episode.score or 0 for episode in played) / 2)
    assert last["val/turns"] == 3.0


def test_the_critic_learns(runs: Path) -> None:
    """Each response earns -1, so values must fall from their initial 0."""
    steps = metrics(runs / "ppo")
    assert steps[0]["critic/values/mean"] == 0.0
    assert steps[-1]["critic/grad_norm"] > 0
    assert steps[-1]["critic/values/mean"] < -0.1
    assert "actor/kl_penalty" in steps[-1]


def test_reward_rises(runs: Path) -> None:
    """At first, 4 of 13 words are moves. A mean over three steps of 64 responses has a standard error of 0.03."""
    steps = metrics(runs / "learns")
    assert np.mean([row["reward/unparsable"] for row in steps[:2]]) > 0.55
    assert np.mean([row["reward/unparsable"] for row in steps[-3:]]) < 0.35
    gained = [np.mean([row["reward/total"] for row in part]) for part in (steps[-3:], steps[:2])]
    assert gained[0] - gained[1] > 0.3


def test_killed_run_resumes_with_the_same_states(runs: Path) -> None:
    """Both runs have the same seed; `state` has two responses per state, `ppo` one."""
    whole, killed = (records(runs / run, "step_000003.jsonl") for run in ("state", "ppo"))
    assert [episode.seed for episode in killed] == [8, 9, 10, 11]
    assert [each.turns[0].state for each in killed] == [each.turns[0].state for each in whole[::2]]
    assert last_step(runs / "ppo") == 3


def test_results(runs: Path) -> None:
    for mode, per_step in (("state", 8), ("ppo", 4)):  # ppo was killed and resumed
        result = json.loads((runs / mode / "result.json").read_text())
        counts = [result[name] for name in ("total_steps", "total_episodes", "final_episodes")]
        assert counts == [3, 3 * per_step, 3 * per_step]
        played = [episode for step in (1, 2, 3) for episode in records(runs / mode, f"step_{step:06d}.jsonl")]
        totals = [sum(turn.reward.total for turn in episode.turns) for episode in played]
        assert result["final_reward"] == pytest.approx(np.mean(totals))
        assert set(result["paths"]) == {"checkpoint", "metrics", "rollouts"}
        assert result["paths"]["checkpoint"] == str(runs / mode / "global_step_3")
    result = json.loads((runs / "state" / "result.json").read_text())
    validated = result["validation"]["after"]["episodes"]["2048-v0"]
    assert (result["validation"]["before"], validated["episodes"]) == (None, 2)
    assert validated["score"] == pytest.approx(metrics(runs / "state")[-1]["val/score"])


def test_named_checkpoint_resumes_with_more_steps(runs: Path) -> None:
    """The run `again` is a copy of `state`, resumed from checkpoint 2 and trained to step 4."""
    again, aside = runs / "again", runs / "again" / "after_step_000002"
    assert [row["step"] for row in metrics(again)] == [1, 2, 3, 4]
    assert metrics(again)[:2] == metrics(runs / "state")[:2]
    for name in ("result.json", "curve.jsonl", "rollouts/step_000003.jsonl", "global_step_3/vlmgym.json"):
        assert (aside / name).read_bytes() == (runs / "state" / name).read_bytes()
    ours, theirs = (records(run, "step_000003.jsonl") for run in (again, runs / "state"))
    assert [each.turns[0].state for each in ours] == [each.turns[0].state for each in theirs]
    result = json.loads((again / "result.json").read_text())
    assert [result[name] for name in ("total_steps", "total_episodes", "final_episodes")] == [4, 32, 32]
    assert last_step(again) == 4


def test_trained_model_is_exported_served_and_compared(runs: Path, tmp_path: Path) -> None:
    training_python()
    export, checkpoint = ["bash", str(ROOT / "training" / "scripts" / "export.sh")], runs / "state" / "global_step_3"
    trained, _ = evaluate_exported(export, checkpoint, runs / "tiny", tmp_path)
    assert trained.config.policy.options["max_tokens"] == 8
    assert trained.config.games[0].config["size"] == 64
    assert [(episode.seed, len(episode.turns)) for episode in trained.episodes] == [(1_000_000, 1), (1_000_001, 1)]
