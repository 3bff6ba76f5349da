"""`vlmgym play`: keys, clicks and typed text, as real pygame events on SDL's dummy driver."""

from collections.abc import Iterator
from typing import Any

import pygame
import pytest

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


def press(key: int, text: str = "") -> None:
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key, unicode=text, mod=0))


def write(text: str) -> None:
    for letter in text:
        press(pygame.key.key_code(letter), letter)
    press(pygame.K_RETURN, "\r")


def test_arrow_keys_and_typed_answers(screen: None, players: list[Player]) -> None:
    press(pygame.K_DOWN)
    press(pygame.K_RIGHT)
    write("up")
    write("jump")
    press(pygame.K_ESCAPE)
    play(PlayConfig(game="2048", seed=0))
    episode = players[0].episode
    assert (episode.seed, episode.turn) == (0, 4)
    assert episode.outcomes == {Outcome.PLAYED: 3, Outcome.ILLEGAL: 0, Outcome.UNPARSABLE: 1}
    assert not pygame.display.get_init()


def test_f5_starts_the_next_episode(screen: None, players: list[Player]) -> None:
    press(pygame.K_DOWN)
    press(pygame.K_F5)
    press(pygame.K_DOWN)
    press(pygame.K_RIGHT)
    press(pygame.K_ESCAPE)
    play(PlayConfig(game="2048", seed=7))
    assert (players[0].episode.seed, players[0].episode.turn) == (8, 2)


def test_ended_episode_ignores_input() -> None:
    player = Player(Episode(make_game("2048", reasoning=5, size=200), 0))
    keys = ("up", "right", "down", "left")
    while player.episode.ended is None:
        for key in keys:
            player.press(key)
    turns = player.episode.turn
    for key in (*keys, "return"):
        player.press(key)
    player.click(5, 5)
    assert player.episode.turn == turns
    assert player.frame().any()
    player.begin(Episode(player.game, 1))
    assert (player.episode.seed, player.episode.turn, player.last) == (1, 0, None)
