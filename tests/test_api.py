"""The public interface: episodes, snapshots, datasets and rewards; episodes of games below it."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.playing import Recording, as_bytes
from vlmgym import Episode, RewardConfig, make_dataset, make_game, reward_fn, score
from vlmgym.errors import EpisodeEnded, StateError, UsageError
from vlmgym.evaluation import evaluate
from vlmgym.sandbox.core.episode import Episode as GameEpisode

SMALL: dict[str, Any] = {"rows": 3, "columns": 3, "goal": 16, "size": 64}
REWARD = RewardConfig(shaping="sign", format_weight=0.1, perception_weight=0.5, illegal=-1.0, unparsable=-2.0)
RESPONSES = (
    "<answer>up</answer>", "<answer>left</answer>", "<think>?</think><answer>right</answer>",
    "<answer>down</answer>", "no answer", "\ud800",
)  # fmt: skip


def pixels(images: list[Any]) -> list[tuple[tuple[int, ...], bytes]]:
    return [(np.asarray(image).shape, np.asarray(image).tobytes()) for image in images]


def assert_same(one: Episode, other: Episode) -> None:
    assert one.snapshot() == other.snapshot()
    assert (one.prompt, one.score, one.end_reason) == (other.prompt, other.score, other.end_reason)
    assert one.outcomes == other.outcomes
    assert pixels(one.images) == pixels(other.images)


PAST = {"history": 2, "history_images": 1}


@pytest.mark.parametrize(
    ("game_id", "settings"),
    [
        *((game, PAST) for game in ("2048", "scenes-statements", "caption", "pairs", "maze")),
        *(("canary", {**PAST, "images": control}) for control in ("blank", "stale", "shuffled", "swapped")),
        ("canary", {**PAST, "chat": True, "workers": 1}),
        ("2048", {**PAST, "chat": True, "observation": "both"}),
        ("canary", {"chat": True, "history_images": 3, "images": "stale"}),
        ("sliding", {"goal_image": True, "history": 3, "history_images": 2}),
    ],
)
def test_an_episode_equals_the_record_of_an_evaluation(game_id: str, settings: dict[str, Any]) -> None:
    """A restored episode, too, which renders past images again."""
    game, policy = make_game(game_id, size=160), Recording(unparsable=3)
    settings = {"max_turns": 6, "reward": REWARD, "workers": 0, **settings}
    records = evaluate(game, policy, 2, seed=5, **settings)
    del settings["workers"]
    for record in records:
        episode = Episode(game, record.seed, **settings)
        for turn in record.turns:
            assert not episode.done
            prompt, _ = policy.calls[game.id, record.seed, turn.turn]
            for shown in (episode, Episode.restore(episode.snapshot())):
                assert shown.prompt == turn.prompt
                assert as_bytes(shown.messages("pil")) == as_bytes(prompt.messages)
                assert pixels(shown.images) == pixels(prompt.images)
            scored = episode.respond(turn.response)
            assert (scored.outcome, scored.total, scored.game, scored.feedback, dict(scored.info)) == (
                turn.outcome,
                turn.reward.total,
                turn.reward.game,
                turn.feedback,
                turn.info,
            )
        assert episode.done
        assert (episode.score, episode.end_reason) == (record.score, record.end_reason)
        assert episode.truncated == (record.status == "turn limit")


@given(st.lists(st.sampled_from(RESPONSES), max_size=8), st.integers(0, 3), st.sampled_from(RESPONSES))
def test_snapshots_continue_and_score_as_the_episode(responses: list[str], history: int, last: str) -> None:
    episode = Episode("2048", 3, max_turns=20, history=history, history_images=history // 2, reward=REWARD, **SMALL)
    for response in responses:
        episode.respond(response)
    snapshot = episode.snapshot()
    restored = Episode.restore(snapshot)
    assert_same(restored, episode)
    assert sum(restored.outcomes.values()) == restored.turn
    expected = episode.respond(last)
    assert restored.respond(last) == expected
    assert_same(restored, episode)
    assert score(snapshot, last) == expected
    assert reward_fn([""], [last], [snapshot]) == [expected.total]
    assert reward_fn([""], [[{"role": "assistant", "content": last}]], snapshot=[snapshot]) == [expected.total]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rows":3', '"rows":4'), ('"rows":3', '"rows":-1'), ("2048-v0", "2048-v9"), ("PCG64", "MT19937"),
        ('"turn":1,"response"', '"turn":-3,"response"'), ('"past":[{', '"past":[{"unknown":1,'),
    ],
)  # fmt: skip
def test_edited_snapshots_are_rejected(old: str, new: str) -> None:
    episode = Episode("2048", 3, history=1, **SMALL)
    episode.respond("no answer")
    snapshot = episode.snapshot()
    assert old in snapshot
    with pytest.raises((StateError, UsageError)) as error:
        Episode.restore(snapshot.replace(old, new))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("game", ["2048", "scenes-statements"])
def test_messages_have_the_same_pixels_in_every_form(game: str) -> None:
    episode = Episode(game, 1, size=64)
    decode: dict[str, Callable[[dict[str, Any]], Any]] = {
        "url": lambda part: Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2]))),
        "pil": lambda part: part["image"],
        "bytes": lambda part: Image.open(io.BytesIO(part["image"])),
    }
    for form, image in decode.items():
        (message,) = episode.messages(form)  # type: ignore[arg-type]
        *images, text = message["content"]
        assert text == {"type": "text", "text": episode.prompt}
        assert pixels([image(part) for part in images]) == pixels(episode.images)


def test_an_ended_episode_shows_its_final_state_and_takes_no_turn() -> None:
    episode = Episode("2048", 0, max_turns=2, **SMALL)
    for _ in range(2):
        response = episode.oracle()
        assert response is not None
        episode.respond(response)
    assert (episode.done, episode.truncated, episode.end_reason) == (True, True, "turn limit")
    assert pixels(episode.images) == pixels(Episode.restore(episode.snapshot()).images)
    for call in (episode.messages, episode.oracle, episode.answer, lambda: episode.respond("<answer>up</answer>")):
        with pytest.raises(EpisodeEnded, match=r"2048 has ended \(turn limit\)"):
            call()


def test_rows_start_the_episodes_of_their_seeds() -> None:
    rows = make_dataset(["2048", "scenes-statements"], 6, seed=2, size=64)
    assert [(row["game"], row["seed"]) for row in rows] == [
        (g, s) for s in (2, 3, 4) for g in ("2048-v0", "scenes-statements-v0")
    ]
    for row in rows:
        episode = Episode(row["game"], row["seed"], size=64)
        assert_same(Episode.restore(row["snapshot"]), episode)
        assert row["prompt"] == [{"role": "user", "content": episode.prompt}]
        assert pixels(row["images"]) == pixels(episode.images)
        assert score(row["snapshot"], f"<answer>{row['answer']}</answer>").outcome == "played"
    assert [row["seed"] for row in make_dataset("2048", 2, 4, "validation", **SMALL)] == [1_000_004, 1_000_005]


# Episodes of games ----------------------------------------------------------------------------------------------------


def test_a_notebook_shows_images_beside_the_prompt() -> None:
    episode = Episode("scenes-statements", seed=0, size=64)
    assert repr(episode) == "<Episode of scenes-statements-v0, seed 0, turn 1 of 100, score 0>"
    html = episode._repr_html_()
    assert [html.count(word) for word in ("<img ", "data:image/png;base64,", "<b>", "<pre ")] == [2, 2, 1, 1]
    assert "&lt;answer&gt;" in html
    assert "<answer>" not in html
    episode.respond("<answer>true</answer>")
    assert "ended: answered" in episode._repr_html_()


def test_a_drawn_seed_reproduces_the_episode() -> None:
    game = make_game("2048")
    first, second = GameEpisode(game), GameEpisode(game)
    assert first.seed != second.seed
    assert 0 <= first.seed < 2**63
    assert GameEpisode(game, first.seed).snapshot() == first.snapshot()
