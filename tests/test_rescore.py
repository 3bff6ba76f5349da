"""Rescoring of saved runs with other reward settings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vlmgym
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.evaluation import EpisodeRecord, EvalConfig, RunFolder, evaluate, read_run
from vlmgym.evaluation.rescore import RescoreConfig, rescore, rescored
from vlmgym.policies import StatePolicy
from vlmgym.sandbox.core.reward import RewardConfig

GAME = vlmgym.make_game("2048", size=64)
WEIGHTS = st.floats(-1e6, 1e6)
REWARDS = st.builds(
    RewardConfig,
    game_weight=WEIGHTS,
    format_weight=WEIGHTS,
    perception_weight=WEIGHTS,
    prediction_weight=WEIGHTS,
    reasoning_weight=WEIGHTS,
    perception_mode=st.sampled_from(["partial", "exact"]),
    shaping=st.sampled_from(["raw", "sign", "log2"]),
    illegal=st.none() | WEIGHTS,
    unparsable=st.none() | WEIGHTS,
)


class Mixed(StatePolicy):
    """A policy whose random responses cover all outcomes and reward components."""

    name = "mixed"

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        whole: str = game.respond(state, game.answer.sample(rng))
        return [whole, whole.replace("2", "4", 1), "<answer>sideways</answer>", whole.partition("<think>")[2]][
            int(rng.integers(4))
        ]


class Several(StatePolicy):
    """A policy that answers with several random actions, some of them illegal."""

    name = "several"

    def respond(self, game: Any, state: Any, rng: np.random.Generator) -> str:
        response: str = game.respond(state, *(game.answer.sample(rng) for _ in range(4)))
        return response


def played(reward, game=GAME, policy=None) -> list[EpisodeRecord]:
    records = evaluate(game, policy or Mixed(), 2, max_turns=25, workers=0, reward=reward)
    return [record.model_copy(update={"started": ""}) for record in records]


@pytest.fixture(scope="module")
def records() -> list[EpisodeRecord]:
    records = played(RewardConfig())
    assert {turn.outcome.value for record in records for turn in record.turns} == {"played", "illegal", "unparsable"}
    assert {turn.reward.format for record in records for turn in record.turns} == {0.0, 1.0}
    assert len({turn.reward.perception for record in records for turn in record.turns}) > 2
    return records


@settings(max_examples=15)
@given(REWARDS)
def test_rescored_is_as_played_with_the_settings(records, reward):
    assert [rescored(record, reward) for record in records] == played(reward)


@pytest.mark.parametrize("shaping", ["sign", "log2"])
def test_each_action_of_a_turn_is_rescored(shaping) -> None:
    game, reward = vlmgym.make_game("2048", size=64, actions_per_turn=4), RewardConfig(shaping=shaping, illegal=-3.0)
    records = played(RewardConfig(), game, Several())
    assert any(turn.outcome.value == "illegal" and len(turn.reward.actions) > 1 for turn in records[0].turns)
    assert [rescored(record, reward) for record in records] == played(reward, game, Several())


@pytest.fixture(scope="module")
def played_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    options = {"episodes": 3, "max_turns": 12, "size": 128, "workers": 0, "videos": 0, "report": False}
    reward = RewardConfig(illegal=-1.0, format_weight=0.25)
    run_evaluation(["2048", "swap"], EvalConfig(reward=reward, output_dir=folder, **options))
    return folder


@pytest.fixture
def run(played_run, tmp_path):
    return shutil.copytree(played_run, tmp_path / "run")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_changes_are_printed(run, capsys):
    before = files(run)
    main(["rescore", str(run), "--reward.illegal", "-2.5"])
    printed = capsys.readouterr().out
    assert "reward: format_weight 0.25 -> 0.0, illegal -1.0 -> -2.5" in printed
    old, new = read_run(run), read_run(run.with_name("run-rescored"))
    assert new.config.reward == RewardConfig(illegal=-2.5)
    assert [episode.score for episode in new.episodes] == [episode.score for episode in old.episodes]
    assert list(new.episodes) == [rescored(episode, RewardConfig(illegal=-2.5)) for episode in old.episodes]
    for game in ("2048-v0", "swap-v0"):
        assert game in printed
    swap = [episode for episode in new.episodes if episode.game.id == "swap-v0"]
    mean = sum(turn.reward.total for episode in swap for turn in episode.turns) / 3
    assert f"{mean:,.4g}" in printed
    assert files(run) == before
    assert new.last_summary().stop_reason is None


def test_killed_run_is_rescored(run):
    place = RunFolder(run)
    lines = place.episodes.read_bytes().splitlines(keepends=True)
    older = lines[0].replace(b'"status":"turn limit"', b'"status":"stopped"')
    place.episodes.write_bytes(b"".join([older, *lines[:3], lines[3][:99]]))
    place.summary.unlink()
    new = read_run(rescore(RescoreConfig(run=run)))
    assert [episode.key for episode in new.episodes] == [episode.key for episode in read_run(run).episodes]
    assert {episode.status for episode in new.episodes} == {"turn limit"}
    assert new.last_summary().stop_reason == "the run was interrupted"
