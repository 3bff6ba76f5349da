"""Human play: an episode, and the keys, clicks and text that make up the next response.

Games map keys and clicks to actions (`Game.key_action`, `BoardGame.click_action`). Every game can also be played by
typing an answer or a whole response.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pygame

from vlmgym.sandbox.core.board_game import BoardGame, Cell
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import turn_prompt
from vlmgym.sandbox.core.response_format import answer_only
from vlmgym.sandbox.core.reward import Scored
from vlmgym.sandbox.drawing.canvas import Colour
from vlmgym.sandbox.drawing.encode import side_by_side
from vlmgym.sandbox.envs.human.panel import PANEL_WIDTH, draw_panel

SMALLEST_SHOWN, LARGEST_SHOWN = 480, 900
"""Limits in pixels. An image whose longer side exceeds `LARGEST_SHOWN` is shrunk to it. Any other image is enlarged by
the largest integer factor that keeps its shorter side within `SMALLEST_SHOWN`, if there is one."""
SHORTEST_PANEL = 620
ARROWS = ("up", "right", "down", "left")
LONGEST_TYPED = 4000
CLICKED: Colour = (20, 120, 255)


class Player:
    """Plays episodes one after another."""

    def __init__(self, episode: Episode[Any, Any], title: str = "", keys: str = "") -> None:
        """Start with an episode.

        Args:
            episode: Episode to play, which is modified.
            title: First line of the panel. Default: the game's id.
            keys: Help on the window's other keys.
        """
        self.title, self.keys = title, keys
        self.scale = 1.0
        self.begin(episode)

    def begin(
        self, episode: Episode[Any, Any], prompt: str | None = None, last: Scored[Any, Any] | None = None
    ) -> None:
        """Start or continue an episode.

        Args:
            episode: Episode to play, which is modified.
            prompt: Prompt of this turn. Default: the prompt without history.
            last: Result of the previous turn, if known.
        """
        self.episode, self.game, self.prompt, self.last = episode, episode.game, prompt, last
        self.typed = ""
        self.clicks: list[Cell] = []

    def press(self, key: str, text: str = "") -> str | None:
        """Handle a key.

        Args:
            key: Name of the key in pygame.
            text: Text that the key types.

        Returns:
            The response played, if the key completed one; else None.
        """
        if self.episode.ended is not None:
            return None
        if key in ("return", "enter"):
            typed = self.typed.strip()
            if typed:
                return self._respond(typed if "<answer" in typed.lower() else answer_only(typed))
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif not self.typed and (action := self.game.key_action(self.episode.state, key)) is not None:
            return self._respond(answer_only(self.game.format(action)))
        elif text.isprintable():
            self.typed = (self.typed + text)[:LONGEST_TYPED]
        return None

    def click(self, x: int, y: int) -> str | None:
        """Handle a click on a pixel of the image. A second click on a cell, or one off the board, clears the selection.

        Returns:
            See `press`.
        """
        game = self.game
        if not isinstance(game, BoardGame) or not game.cells_in_action or self.episode.ended is not None:
            return None
        cell = game.painter.geometry.cell_at(x, y)
        if cell is None or cell in self.clicks:
            self.clicks = []
            return None
        self.clicks.append(cell)
        if len(self.clicks) < game.cells_in_action:
            return None
        return self._respond(answer_only(game.format(game.click_action(self.clicks))))

    def frame(self) -> ImageArray:
        """Draw the window: the image that a model would get, scaled and with selected cells framed, next to the panel.

        Sets `scale` to the scale of the image.

        Returns:
            uint8 of shape (height, width, 3).
        """
        episode = self.episode
        image = self._image()
        self.scale = magnification(image)
        image = show(image)
        height = max(image.shape[0], SHORTEST_PANEL)
        panel = draw_panel(
            height=height,
            title=self.title or self.game.id,
            episode=episode,
            last=self.last,
            prompt=self.prompt or turn_prompt(self.game, episode.state, episode.feedback),
            typed=self.typed,
            keys=self._ways(),
        )
        frame = np.empty((height, image.shape[1] + PANEL_WIDTH, 3), np.uint8)
        frame[:] = image[0, 0]  # surround small images with their page colour
        frame[: image.shape[0], : image.shape[1]] = image
        frame[:, image.shape[1] :] = panel
        return frame

    def _image(self) -> ImageArray:
        image = side_by_side(self.game.images(self.episode.state))
        if isinstance(self.game, BoardGame):
            for row, column in self.clicks:
                x, y, width, height = self.game.painter.geometry.cell_box(row, column)
                _frame(image[y : y + height, x : x + width], max(2, width // 16), CLICKED)
        return image

    def _respond(self, response: str) -> str:
        self.last = self.episode.respond(response)
        self.prompt, self.typed, self.clicks = None, "", []
        return response

    def _ways(self) -> str:
        game, state = self.game, self.episode.state
        ways = []
        if self.episode.ended is None:
            if any(game.key_action(state, arrow) is not None for arrow in ARROWS):
                ways.append("Arrow keys: move.")
            if isinstance(game, BoardGame) and game.cells_in_action:
                ways.append("Click: select cells.")
            ways.append("Type an answer or a whole response; Enter: send.")
        return "  ".join([*ways, self.keys])


def magnification(image: ImageArray) -> float:
    """Return the scale at which an image is displayed."""
    height, width, _ = image.shape
    longer, shorter = max(height, width), min(height, width)
    if longer > LARGEST_SHOWN:
        return float(LARGEST_SHOWN / longer)
    return float(max(1, SMALLEST_SHOWN // shorter))


def show(image: ImageArray) -> ImageArray:
    """Scale an image for display."""
    scale = magnification(image)
    if scale >= 1:
        return image.repeat(int(scale), axis=0).repeat(int(scale), axis=1)
    height, width = (round(side * scale) for side in image.shape[:2])
    surface = pygame.transform.smoothscale(pygame.surfarray.make_surface(image.swapaxes(0, 1)), (width, height))
    smaller: ImageArray = pygame.surfarray.array3d(surface).swapaxes(0, 1)
    return smaller


def _frame(area: ImageArray, width: int, colour: Colour) -> None:
    """Draw a frame along the inner edge of a part of an image."""
    area[:width], area[-width:], area[:, :width], area[:, -width:] = (colour,) * 4
