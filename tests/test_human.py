"""The policy `human`, with real pygame events on SDL's dummy driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pygame
import pytest

import vlmgym
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.errors import DisplayError, PolicyError, UsageError
from vlmgym.evaluation import EvalConfig, evaluate, read_run
from vlmgym.policies import human
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.envs.human import magnification

GAME = vlmgym.make_game("2048", size=128)
WATCHED = (pygame.KEYDOWN, pygame.MOUSEBUTTONDOWN, pygame.QUIT)


def key(code: int, text: str = "") -> pygame.event.Event:
    return pygame.event.Event(pygame.KEYDOWN, key=code, unicode=text, mod=0)


def typed(text: str) -> list[pygame.event.Event]:
    return [*(key(ord(letter), letter) for letter in text), key(pygame.K_RETURN, "\r")]


QUIT = pygame.event.Event(pygame.QUIT)
DOWN, LEFT, UP = key(pygame.K_DOWN), key(pygame.K_LEFT), key(pygame.K_UP)


class Player(threading.Thread):
    """Posts each event once the previous one has been processed; with a pause, stores the frame shown before each."""

    def __init__(self, events: list[pygame.event.Event], pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.events, self.pause = events, pause
        self.seen: list[Any] = []

    def run(self) -> None:
        end = time.monotonic() + 20
        for event in self.events:
            while pygame.display.get_surface() is None or pygame.event.peek(WATCHED, pump=False):
                if time.monotonic() > end:
                    return
                time.sleep(0.005)
            if self.pause:
                time.sleep(self.pause)
                self.seen.append(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1))
            pygame.event.post(event)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    players: list[Player] = []

    def start(events: list[pygame.event.Event], pause: float = 0.0) -> Player:
        players.append(Player(events, pause))
        players[-1].start()
        return players[-1]

    yield start
    for player in players:
        player.join(timeout=20)
        assert not player.is_alive()
    assert not pygame.display.get_init()


def test_keys_and_typed_text_are_responses(play: Any):
    play([DOWN, *typed("left"), *typed("jump"), UP, LEFT, DOWN])
    records = evaluate(GAME, "human", 2, max_turns=3, seed=4, workers=0, history=1)
    assert [[turn.response for turn in record.turns] for record in records] == [
        ["<answer>down</answer>", "<answer>left</answer>", "<answer>jump</answer>"],
        ["<answer>up</answer>", "<answer>left</answer>", "<answer>down</answer>"],
    ]
    for record in records:
        assert record.policy.name == "human"
        assert record.status == "turn limit"
        episode = Episode(GAME, record.seed)
        for turn in record.turns:
            assert GAME.to_data(episode.state) == turn.state
            assert episode.respond(turn.response).outcome is turn.outcome
            assert turn.latency is not None
            assert 0 < turn.latency < 20
        assert episode.score == record.score
    assert records[0].turns[2].outcome.value == "unparsable"


@pytest.mark.parametrize("leave", [QUIT, key(pygame.K_ESCAPE)], ids=["close", "escape"])
def test_closed_window_keeps_turns_and_resumes(play: Any, tmp_path: Path, leave: pygame.event.Event):
    options: Any = {"policy": "human", "episodes": 2, "max_turns": 3, "size": 128, "workers": 0}
    options |= {"videos": 0, "report": False}
    play([DOWN, LEFT, UP, LEFT, leave])
    with pytest.raises(PolicyError, match=r"the window was closed; .*--resume"):
        run_evaluation(["2048"], EvalConfig(**options, output_dir=tmp_path / "run"))
    before = read_run(tmp_path / "run").episodes
    assert [(record.status, len(record.turns)) for record in before] == [("turn limit", 3), ("stopped", 1)]
    play([*typed("down"), UP])
    run_evaluation(["2048"], EvalConfig(**options, resume=tmp_path / "run"))
    after = read_run(tmp_path / "run").episodes
    assert after[0] == before[0]
    assert after[1].turns[0] == before[1].turns[0]
    assert [turn.response for turn in after[1].turns[1:]] == ["<answer>down</answer>", "<answer>up</answer>"]


def test_final_state_is_shown_until_a_key(play: Any, lamps: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(human, "FINAL_STATE_SECONDS", 0.5)
    game = lamps.Lamps(lamps.LampsConfig(rows=1, columns=1))
    x, y, width, height = game.painter.geometry.cell_box(0, 0)
    scale = magnification(game.draw(game.start(np.random.default_rng(0))))
    place = int((x + width / 2) * scale), int((y + height / 2) * scale)
    click = pygame.event.Event(pygame.MOUSEBUTTONDOWN, button=pygame.BUTTON_LEFT, pos=place)
    play([click, key(pygame.K_SPACE, " "), click])
    began = time.monotonic()
    records = evaluate(game, "human", 2, max_turns=3, workers=0)
    assert [record.status for record in records] == ["ended", "ended"]
    assert time.monotonic() - began > 0.5


@pytest.mark.parametrize(("game", "options"), [("2048", {"chat": True}), ("2048", {"images": "blank"}), ("pairs", {})])
def test_people_see_one_image(monkeypatch: pytest.MonkeyPatch, game: str, options: dict[str, Any]):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.raises(UsageError, match="remove --observation, --images and --chat, and set --history-images 0"):
        evaluate(game, "human", 1, max_turns=2, workers=0, **options)


def test_missing_display(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match="1"):
        main(["eval", "2048", "--policy", "human", "--output-dir", str(tmp_path / "run")])
    assert "DISPLAY and WAYLAND_DISPLAY are not set" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    with pytest.raises(DisplayError, match="window"):
        evaluate(GAME, "human", 1, workers=0)
