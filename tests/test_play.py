"""`vlmgym play`: keys, clicks and typed text, as real pygame events on SDL's dummy driver."""

from collections.abc import Iterator
from typing import Any

import pygame
import pytest

from tests.test_human import DOWN, key, typed
from vlmgym import make_game
from vlmgym.cli.play import PlayConfig, play
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.envs import human
from vlmgym.sandbox.envs.human import Player


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame.display.init()
    yield
    pygame.display.quit()


@pytest.fixture
def players(monkeypatch: pytest.MonkeyPatch) -> list[Player]:
    """A list of the players that `play` creates."""
    made: list[Player] = []

    class Seen(Player):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(human, "Player", Seen)
    return made


ESCAPE, F5, RIGHT = map(key, (pygame.K_ESCAPE, pygame.K_F5, pygame.K_RIGHT))


def post(*events: pygame.event.Event) -> None:
    for event in events:
        pygame.event.post(event)


def test_arrow_keys_and_typed_answers(screen: None, players: list[Player]) -> None:
    post(DOWN, RIGHT, *typed("up"), *typed("jump"), ESCAPE)
    play(PlayConfig(game="2048", seed=0))
    episode = players[0].episode
    assert (episode.seed, episode.turn) == (0, 4)
    assert episode.outcomes == {Outcome.PLAYED: 3, Outcome.ILLEGAL: 0, Outcome.UNPARSABLE: 1}
    assert not pygame.display.get_init()


def test_f5_starts_the_next_episode(screen: None, players: list[Player]) -> None:
    post(DOWN, F5, DOWN, RIGHT, ESCAPE)
    play(PlayConfig(game="2048", seed=7))
    assert (players[0].episode.seed, players[0].episode.turn) == (8, 2)


def test_ended_episode_ignores_input() -> None:
    player = Player(Episode(make_game("2048", reasoning=5, size=200), 0))
    keys = ("up", "right", "down", "left")
    while player.episode.ended is None:
        for name in keys:
            player.press(name)
    turns = player.episode.turn
    for name in (*keys, "return"):
        player.press(name)
    player.click(5, 5)
    assert player.episode.turn == turns
    assert player.frame().any()
    player.begin(Episode(player.game, 1))
    assert (player.episode.seed, player.episode.turn, player.last) == (1, 0, None)
