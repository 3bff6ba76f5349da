"""Prompts of games that need memory repeat earlier turns by default, in episodes, evaluation and training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vlmgym import Episode, make_game
from vlmgym.cli.eval import run_evaluation
from vlmgym.curriculum import Curriculum
from vlmgym.evaluation import EvalConfig, open_run
from vlmgym.evaluation.verify import verify_run
from vlmgym.pages.report import LabelledRun, run_facts
from vlmgym.policies.base import Reply
from vlmgym.rollout.states import StateConfig
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.states import MultiTurnConfig, start_rollouts

FOG: dict[str, Any] = {"reasoning": 5, "size": 320}


@pytest.mark.parametrize(("game_id", "config", "turns"), [("pairs", {}, 16), ("maze", {}, 0), ("maze", FOG, 16)])
def test_games_say_how_many_turns_they_need(game_id: str, config: dict[str, Any], turns: int) -> None:
    game = make_game(game_id, **config)
    episode = Episode(game, 0, max_turns=30)
    for turn in range(20):
        assert len(episode.images) == len(episode.messages()[0]["content"]) - 1 == 1 + min(turn, turns)
        episode.respond("")


@pytest.mark.parametrize(
    ("game_id", "settings", "repeats"),
    [
        ("pairs", {}, True), ("pairs", {"history": 0}, False), ("pairs", {"chat": True}, False), ("2048", {}, False),
        ("2048", {"history": 1}, True), ("2048", {"chat": True, "history": 1}, False),
    ],
)  # fmt: skip
def test_episodes_say_if_prompts_repeat_turns(game_id: str, settings: dict[str, Any], repeats: bool) -> None:
    episode = Episode(game_id, 0, **settings)
    assert (episode.repeats_turns, Episode.restore(episode.snapshot()).repeats_turns) == (repeats, repeats)


def test_runs_record_the_history_of_each_game(tmp_path: Path) -> None:
    options: dict[str, Any] = {"episodes": 1, "max_turns": 4, "size": 128, "workers": 0, "videos": 0, "report": False}
    run_evaluation(["2048", "pairs"], EvalConfig(policy="random-legal", output_dir=tmp_path, **options))
    run = open_run(tmp_path)
    assert [(game.id, game.history) for game in run.config.games] == [("2048-v0", 0), ("pairs-v0", 16)]
    assert [stored.read().prompts.history for stored in run.episodes] == [0, 16]
    assert not verify_run(run, 0).problems
    summary = run.folder.read_summary()
    assert summary is not None
    facts = dict(run_facts(LabelledRun("run", run, summary))["facts"])
    assert "pairs-v0: 16 earlier turns" in facts["history"]
    assert "2048-v0: no earlier turns" in facts["history"]


def test_training_prompts_repeat_earlier_turns() -> None:
    alone = Curriculum.of([make_game("pairs", size=128)])
    picks = alone.picks(alone.begin(), 0, range(1))
    (episode,) = start_rollouts(picks, 0, 1, MultiTurnConfig(max_turns=3), StateConfig(moves=(0, 0)), RewardConfig())
    episode.respond(Reply("<answer>(0, 0)</answer>"))
    assert len(episode.observation.images) == 2
    assert "Your earlier turns" in episode.observation.prompt
    assert [MultiTurnConfig(max_turns=turns).past_turns(16) for turns in (1, 3, 40)] == [0, 2, 16]
