"""`vlmgym play`: keys, clicks and typed text, as real pygame events on SDL's dummy driver."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pygame
import pytest

from vlmgym import make_game
from vlmgym.cli.play import PlayConfig, play
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.envs import human
from vlmgym.sandbox.envs.human import Player, magnification


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


def click(x: int, y: int) -> None:
    pygame.event.post(pygame.event.Event(pygame.MOUSEBUTTONDOWN, button=pygame.BUTTON_LEFT, pos=(x, y)))


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


def test_clicks_in_an_enlarged_image(screen: None, players: list[Player]) -> None:
    game: Any = make_game("swap", size=200)
    state = game.start(np.random.default_rng(4))
    action = game.legal_actions(state)[0]
    scale = magnification(game.draw(state))
    assert scale == 2
    for cell in (action[:2], action[2:]):
        x, y, width, height = game.painter.geometry.cell_box(*cell)
        click(int((x + width / 2) * scale), int((y + height / 2) * scale))
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    play(PlayConfig(game="swap", seed=4, size=200))
    assert players[0].last is not None
    assert players[0].last.action == action
    assert players[0].episode.outcomes[Outcome.PLAYED] == 1


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
