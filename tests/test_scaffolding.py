"""Prompts without rules or feedback, and with legal actions or an image of the goal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vlmgym
from tests.commands import BARE
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.policies.base import identity
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.turn import GameSetup, LiveEpisode


def test_prompts_without_rules_keep_actions_and_form() -> None:
    full, short = (vlmgym.Episode("lightsout", 1, rules=rules).prompt for rules in (True, False))
    assert "Pressing a lamp switches it" in full
    assert "Pressing a lamp switches it" not in short
    assert short.endswith(full[full.index("\nActions: ") :])


@pytest.mark.parametrize("chat", [False, True])
def test_prompts_without_feedback_hide_results(chat: bool) -> None:
    for feedback in (True, False):
        episode = vlmgym.Episode("lightsout", 1, chat=chat, history=3, feedback=feedback)
        why = episode.respond("<answer>9, 9</answer>").feedback
        text = json.dumps(episode.messages("pil"), default=str)
        hints = [hint in text for hint in (why, "illegal", "was not played")]
        assert hints == [feedback, feedback and not chat, feedback]


def test_prompts_list_legal_actions() -> None:
    assert vlmgym.Episode("2048", 0, show_legal=True).prompt.endswith("\n\nLegal actions: up; right; down; left.")
    episode = vlmgym.Episode("lightsout", 0, rows=2, columns=2, show_legal=True, chat=True)
    assert episode.prompt == "Turn 1.\n\nLegal actions: (0, 0); (0, 1); (1, 0); (1, 1)."


@pytest.mark.parametrize("game", ["jigsaw", "lightsout", "sliding", "sokoban"])
@pytest.mark.parametrize("chat", [False, True])
def test_the_goal_is_the_first_image_of_every_prompt(game: str, chat: bool) -> None:
    settings: dict[str, Any] = {"size": 128, "chat": chat, "history": 2, "history_images": 1}
    plain, shown = (vlmgym.Episode(game, 2, goal_image=goal, **settings) for goal in (False, True))
    goal = shown.images[0]
    while not plain.done:
        messages = shown.messages("pil")
        assert sum(part["type"] == "image" for message in messages for part in message["content"]) == len(shown.images)
        np.testing.assert_array_equal(shown.images[0], goal)
        np.testing.assert_array_equal(shown.images[1:], plain.images)
        response = str(plain.oracle())
        plain.respond(response)
        shown.respond(response)
    if game != "sokoban":  # whose goal image has no player
        np.testing.assert_array_equal(plain.images[-1], goal)


@pytest.mark.parametrize("control", ["stale", "shuffled", "swapped"])
def test_image_controls_show_the_goal_of_what_they_show(control: Any) -> None:
    settings: dict[str, Any] = {"size": 128, "goal_image": True, "history": 1, "history_images": 1}
    true, other = (vlmgym.Episode("sokoban", seed, **settings) for seed in (2, 3))
    shown = vlmgym.Episode("sokoban", 2, images=control, **settings)
    for episode in (true, shown):
        episode.respond(str(episode.oracle()))
    expected = other if control == "shuffled" else true
    np.testing.assert_array_equal(shown.images[0], expected.images[0])
    assert (shown.images[0] != shown.images[1]).any()


@pytest.mark.parametrize("control", ["true", "swapped"])
def test_policies_get_the_goal_first_in_every_turn(control: Any) -> None:
    settings = EpisodeSettings(goal_image=True, history=2, history_images=2, images=control)
    live = LiveEpisode(GameSetup(vlmgym.make_game("sokoban", size=128), settings, identity), 2)
    for _ in range(3):
        np.testing.assert_array_equal(live.observation.images, live.images())
        live.step(live.setup.game.respond(live.episode.state, live.setup.game.best_action(live.episode.state)))


def test_the_command_records_and_exports_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ["--policy", "oracle", "--no-rules", "--no-feedback", "--show-legal", "--goal-image"]
    main(["eval", "sliding", *BARE, *options, "--output-dir", str(folder)])
    prompts = open_run(folder).config.prompts
    assert (prompts.rules, prompts.feedback, prompts.show_legal, prompts.goal_image) == (False, False, True, True)
    main(["verify", str(folder), "--workers", "0"])
    main(["export", str(folder), "--output-dir", str(tmp_path / "data"), "--format", "sharegpt", "--workers", "0"])
    (file,) = (tmp_path / "data").glob("*.jsonl")
    row = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
    assert len(row["images"]) == 2
    assert row["messages"][0]["content"].startswith("<image><image>")
