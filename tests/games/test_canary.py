"""Canary: only the right images of the right turn give the answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import vlmgym


@pytest.mark.parametrize("config", [{"back": 0, "frames": 1}, {"back": 2, "frames": 2, "asked": 2}])
def test_texts_are_the_same_in_every_episode(config: dict[str, Any]) -> None:
    def texts(seed: int) -> list[str]:
        episode, prompts = vlmgym.Episode("canary", seed, size=64, **{"asked": 1, **config}), list[str]()
        while not episode.done:
            prompts.append(episode.prompt)
            episode.respond("I cannot see it.")
        return prompts

    assert texts(0) == texts(1)


def test_answers_are_digits_of_earlier_turns_and_images() -> None:
    config: dict[str, Any] = {"size": 64, "frames": 2, "asked": 2, "back": 2, "turns": 3}
    episode, shown = vlmgym.Episode("canary", 7, **config), list[tuple[int, ...]]()
    while not episode.done:
        state = episode._live.episode.state
        shown.append(state.digits[-1])
        assert episode.answer() == str(shown[-3][1] if len(shown) > 2 else 0)
        assert len(episode.images) == 2 * min(len(shown), 3)
        reward = episode.respond(f"<answer>{episode.answer()}</answer>").game
        assert reward == pytest.approx(1 / 3 if len(shown) > 2 else 0)
    assert len(shown) == 5
    assert all({*first}.isdisjoint(second) for first, second in pairwise(shown))


def test_unparsable_answers_go_on_to_the_next_image() -> None:
    episode = vlmgym.Episode("canary", 3, size=64, frames=1, asked=1, back=1, turns=2)
    before = [image.tobytes() for image in episode.images]
    episode.respond("no answer")
    assert [image.tobytes() for image in episode.images][:1] == before
    assert len({image.tobytes() for image in episode.images}) == 2
