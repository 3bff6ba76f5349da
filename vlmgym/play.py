"""`vlmgym play GAME`: play by keys, mouse or words, and see what a model would be told.

How a key or a click becomes an action is for the game to say (`Game.key_action`, `BoardGame.click_action`); every game
can be played by typing an answer, or a whole response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pygame
import tyro

from vlmgym.errors import UsageError
from vlmgym.options import GameOptions
from vlmgym.play_panel import PANEL_WIDTH, draw_panel
from vlmgym.sandbox.board_game import BoardGame, Cell
from vlmgym.sandbox.drawing.canvas import Colour
from vlmgym.sandbox.drawing.pictures import side_by_side
from vlmgym.sandbox.episode import Episode
from vlmgym.sandbox.game import Game, Picture
from vlmgym.sandbox.prompt import turn_prompt
from vlmgym.sandbox.reward import Scored
from vlmgym.sandbox.window import Window

SMALLEST_SHOWN, LARGEST_SHOWN = 480, 900
"""Pictures are shown pixel by pixel between these sizes; smaller ones are magnified, larger ones made smaller."""
SHORTEST_PANEL = 620
FPS = 30
ARROWS = ("up", "right", "down", "left")
LONGEST_TYPED = 4000
SEEDS = 2**31
CLICKED: Colour = (20, 120, 255)


@dataclass(frozen=True, kw_only=True)
class PlayConfig(GameOptions):
    """Play a game by hand in a window."""

    game: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME")]
    """Id or name of the game, for instance 2048."""
    seed: int | None = None
    """Seed of the first episode; the next ones count up from it. None: chosen by chance."""


class Player:
    """A person at the keyboard: the episode played, and what is typed and clicked so far."""

    def __init__(self, game: Game[Any, Any], seed: int, title: str = "") -> None:
        self.game = game
        self.title = title
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Start an episode."""
        self.episode: Episode[Any, Any] = Episode(self.game, seed)
        self.last: Scored[Any, Any] | None = None
        self.typed = ""
        self.clicks: list[Cell] = []

    def press(self, key: str, text: str = "") -> None:
        """Press a key.

        Args:
            key: The key's name, as pygame has it.
            text: What it types, if anything.
        """
        if key == "f5":
            self.begin((self.episode.seed + 1) % SEEDS)
        elif self.episode.ended is not None:
            return
        elif key in ("return", "enter"):
            self._send()
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif not self.typed and (action := self.game.key_action(self.episode.state, key)) is not None:
            self._act(action)
        elif text.isprintable():
            self.typed = (self.typed + text)[:LONGEST_TYPED]

    def click(self, x: int, y: int) -> None:
        """Click on a pixel of the picture; a cell clicked twice, or a click beside the board, lets go of all."""
        game = self.game
        if not isinstance(game, BoardGame) or not game.cells_in_action or self.episode.ended is not None:
            return
        cell = game.painter.geometry.cell_at(x, y)
        if cell is None or cell in self.clicks:
            self.clicks = []
            return
        self.clicks.append(cell)
        if len(self.clicks) == game.cells_in_action:
            self._act(game.click_action(self.clicks))

    def frame(self) -> Picture:
        """The window's content: the picture as a model sees it, and beside it what a model is told."""
        episode = self.episode
        picture = show(self._picture())
        height = max(picture.shape[0], SHORTEST_PANEL)
        panel = draw_panel(
            height=height,
            title=self.title or self.game.id,
            episode=episode,
            last=self.last,
            prompt=turn_prompt(self.game, episode.state, episode.feedback),
            typed=self.typed,
            keys=self._keys(),
        )
        frame = np.empty((height, picture.shape[1] + PANEL_WIDTH, 3), np.uint8)
        frame[:] = picture[0, 0]  # the picture's own page colour around a small picture
        frame[: picture.shape[0], : picture.shape[1]] = picture
        frame[:, picture.shape[1] :] = panel
        return frame

    def _picture(self) -> Picture:
        picture = side_by_side(self.game.images(self.episode.state))
        if isinstance(self.game, BoardGame):
            for row, column in self.clicks:
                x, y, width, height = self.game.painter.geometry.cell_box(row, column)
                _frame(picture[y : y + height, x : x + width], max(2, width // 16), CLICKED)
        return picture

    def _send(self) -> None:
        text = self.typed.strip()
        if text:
            self._took(self.episode.respond(text if "<answer>" in text else f"<answer>{text}</answer>"))

    def _act(self, action: Any) -> None:
        self._took(self.episode.act(action))

    def _took(self, scored: Scored[Any, Any]) -> None:
        self.last, self.typed, self.clicks = scored, "", []

    def _keys(self) -> str:
        game, state = self.game, self.episode.state
        ways = []
        if self.episode.ended is None:
            if any(game.key_action(state, arrow) is not None for arrow in ARROWS):
                ways.append("Arrow keys: play.")
            if isinstance(game, BoardGame) and game.cells_in_action:
                ways.append("Click: choose cells.")
            ways.append("Type an answer or a whole response, Enter: send.")
        return "  ".join([*ways, "F5: next episode.", "Esc: quit."])


def play(config: PlayConfig) -> None:
    """Open a window and let a person play until it is closed.

    Raises:
        UsageError: There is no such game, level or knob, or a value is not accepted.
        DisplayError: There is no screen.
    """
    game = config.make_game(config.game)
    if config.seed is not None and config.seed < 0:
        raise UsageError(f"seed is a number from 0, not {config.seed}")
    seed = int(np.random.default_rng().integers(SEEDS)) if config.seed is None else config.seed
    player = Player(game, seed, f"{game.id}   perception {config.perception}   reasoning {config.reasoning}")
    window = Window(f"vlmgym play {game.id}", needs_screen=True)
    scale = magnification(side_by_side(game.images(player.episode.state)))
    frame = player.frame()
    playing = True
    try:
        while playing:
            window.show(frame, FPS)
            changed = False
            for event in window.events():
                if event.type == pygame.KEYDOWN:
                    playing = playing and event.key != pygame.K_ESCAPE
                    player.press(pygame.key.name(event.key), event.unicode)
                    changed = True
                elif event.type == pygame.MOUSEBUTTONDOWN and event.button == pygame.BUTTON_LEFT:
                    player.click(int(event.pos[0] / scale), int(event.pos[1] / scale))
                    changed = True
            playing = playing and not window.closed_by_user
            if changed:
                frame = player.frame()
    finally:
        window.close()


def magnification(picture: Picture) -> float:
    """How many pixels of the window a pixel of the picture is wide."""
    height, width, _ = picture.shape
    longer, shorter = max(height, width), min(height, width)
    if longer > LARGEST_SHOWN:
        return float(LARGEST_SHOWN / longer)
    return float(max(1, SMALLEST_SHOWN // shorter))


def show(picture: Picture) -> Picture:
    """The picture as large as it is shown."""
    scale = magnification(picture)
    if scale >= 1:
        return picture.repeat(int(scale), axis=0).repeat(int(scale), axis=1)
    height, width = (round(side * scale) for side in picture.shape[:2])
    surface = pygame.transform.smoothscale(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (width, height))
    smaller: Picture = pygame.surfarray.array3d(surface).swapaxes(0, 1)
    return smaller


def _frame(area: Picture, width: int, colour: Colour) -> None:
    """Draw a frame along the inner edge of a part of a picture."""
    area[:width], area[-width:], area[:, :width], area[:, -width:] = (colour,) * 4
