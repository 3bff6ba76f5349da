"""Observations as images, as text, or as both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vlmgym
from tests.api_server import ApiServer
from tests.api_server import policy as server_policy
from tests.playing import Recording
from vlmgym import Episode, make_game
from vlmgym.benchmark.verify import verify_run
from vlmgym.cli.eval import run_evaluation
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.evaluation import EvalConfig, evaluate, open_run
from vlmgym.pages.compare import CompareConfig, compare
from vlmgym.policies.base import Reply
from vlmgym.rollout.states import StateConfig
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.states import MultiTurnConfig, start_rollouts

DESCRIBED = ("2048", "canary", "differences", "pairs", "scenes-statements")
OPTIONS: dict[str, Any] = {"episodes": 2, "max_turns": 4, "size": 128, "workers": 0, "videos": 0}


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(("game_id", "told"), [("lightsout", False), ("jigsaw", False), ("sliding", True)])
def test_rewards_that_give_away_the_solution_are_left_out(game_id: str, told: bool, chat: bool) -> None:
    game = vlmgym.make_game(game_id, size=64)
    (record,) = evaluate(game, "oracle", 1, max_turns=2, workers=0, history=2, chat=chat)
    assert ("reward" in record.turns[1].prompt) == told


@pytest.mark.parametrize(("game_id", "observation"), [("2048", "text"), *((game, "both") for game in DESCRIBED)])
def test_prompts_contain_the_description_and_images_on_request(game_id: str, observation: Any) -> None:
    game = vlmgym.make_game(game_id, size=320)
    policy = Recording(unparsable=2)
    records = evaluate(game, policy, 2, max_turns=4, workers=0, observation=observation, history=2, history_images=1)
    each = len(game.image_shapes) if observation == "both" else 0
    for record in records:
        assert record.prompts.observation == observation
        states = [game.from_data(turn.state) for turn in record.turns]
        for turn, state in zip(record.turns, states):
            prompt, _ = policy.calls[game.id, record.seed, turn.turn]
            images, (message,) = prompt.images, prompt.messages
            assert prompt == turn.prompt
            shown = min(turn.turn, 2)
            assert len(images) == each * shown
            kinds = [part["type"] for part in message["content"]]
            assert (message["role"], kinds) == ("user", ["image"] * len(images) + ["text"])
            assert prompt.count(game.describe(state)) >= 1
            if turn.turn > 1:
                assert game.describe(states[turn.turn - 2]) in prompt
            unchanged = "The image has not changed" if each else "The description has not changed"
            is_unchanged = turn.turn > 1 and bool(record.turns[turn.turn - 2].feedback) and game.invalid_keeps_state
            assert (unchanged in prompt) == is_unchanged


@pytest.mark.parametrize("observation", ["text", "both"])
@pytest.mark.parametrize("game", ["geospot", "caption"])
def test_descriptions_that_are_the_answer_are_rejected(game: str, observation: Any, tmp_path: Path) -> None:
    message = f"^{game} cannot be played with observation {observation}: its descriptions are the answers$"
    with pytest.raises(UsageError, match=message):
        vlmgym.Episode(game, 0, observation=observation)
    with pytest.raises(UsageError, match=message):
        vlmgym.make_dataset(["2048", game], 1, observation=observation)
    with pytest.raises(UsageError, match=message):
        run_evaluation([game], EvalConfig(observation=observation, output_dir=tmp_path / "run", **OPTIONS))
    assert not list(tmp_path.iterdir())


def test_servers_get_a_string_without_images() -> None:
    with ApiServer().running() as server:
        (record,) = evaluate("2048", server_policy(server), 1, max_turns=2, workers=0, observation="text")
    assert [request.body["messages"] for request in server.requests] == [
        [{"role": "user", "content": turn.prompt}] for turn in record.turns
    ]


def test_comparison_of_text_with_images_names_the_perception_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    different: dict[str, dict[str, Any]] = {
        "text": {"observation": "text"},
        "image": {},
        "both": {"observation": "both"},
        "other": {"policy": "oracle"},
    }
    for name, options in different.items():
        config = EvalConfig(
            **{"policy": "random", "report": False, **OPTIONS, **options, "output_dir": tmp_path / name}
        )
        run_evaluation(["2048"], config)
    gap = "the policy is the same, so the difference in score is the perception gap"
    for name, named in (("image", True), ("both", False), ("other", False)):
        runs = tmp_path / "text", tmp_path / name
        found = compare(CompareConfig(runs=runs, labels=("text", name), page=False, workers=0))
        assert f"observation is text in text and {'both' if name == 'both' else 'image'} in {name}" in found.notes
        assert (gap in found.notes) == named
    assert gap in " ".join(capsys.readouterr().out.split())


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


def test_training_prompts_repeat_earlier_turns() -> None:
    alone = Curriculum.of([make_game("pairs", size=128)])
    picks = alone.picks(alone.begin(), 0, range(1))
    (episode,) = start_rollouts(picks, 0, 1, MultiTurnConfig(max_turns=3), StateConfig(moves=(0, 0)), RewardConfig())
    episode.respond(Reply("<answer>(0, 0)</answer>"))
    assert len(episode.observation.images) == 2
    assert "Your earlier turns" in episode.observation.prompt
    assert [MultiTurnConfig(max_turns=turns).past_turns(16) for turns in (1, 3, 40)] == [0, 2, 16]
