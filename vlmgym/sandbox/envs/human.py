"""Human play: windows, the keys, clicks and text that make up responses, and the panel next to the image.

The game's `answer` maps keys and clicks to actions. Every game can also be played by
typing an answer or a whole response.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pygame

from vlmgym.errors import DisplayError
from vlmgym.sandbox.answers.cells import Cell
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import turn_prompt
from vlmgym.sandbox.core.response_format import answer_only
from vlmgym.sandbox.core.reward import Scored
from vlmgym.sandbox.drawing.canvas import OUTCOME_COLOURS, Canvas, Colour, fit, text_width, write_lines
from vlmgym.sandbox.drawing.degrade import resize
from vlmgym.sandbox.drawing.encode import side_by_side

OFFSCREEN_DRIVERS = ("dummy", "offscreen")
"""SDL video drivers that draw off screen. Without a display, SDL falls back to the second."""

NO_DISPLAY = "there is no display for a window: DISPLAY and WAYLAND_DISPLAY are not set"
FPS = 30
SMALLEST_SHOWN, LARGEST_SHOWN = 480, 900
"""Limits in pixels. An image whose longer side exceeds `LARGEST_SHOWN` is shrunk to it. Any other image is enlarged by
the largest integer factor that keeps its shorter side within `SMALLEST_SHOWN`, if there is one."""
SHORTEST_PANEL = 620
ARROWS = ("up", "right", "down", "left")
LONGEST_TYPED = 4000
CLICKED: Colour = (20, 120, 255)
PANEL_WIDTH = 620

_PAGE: Colour = (28, 31, 40)
_INK: Colour = (232, 234, 240)
_FAINT: Colour = (146, 154, 172)
_ACCENT: Colour = (96, 165, 250)

_MARGIN = 24
_INNER = PANEL_WIDTH - 2 * _MARGIN
_LARGEST_TEXT, _SMALLEST_TEXT = 9.5, 6.5


class Window:
    """A window that shows images. Pygame has one window per process, so a second `Window` replaces the first.

    The display is initialised by the first `show`. Only pygame's display module is started and stopped; the font
    module, which rendering uses, stays initialised.
    """

    def __init__(self, title: str) -> None:
        """Prepare a window; it opens with the first image."""
        self.title = title
        self.closed_by_user = False
        self._surface: pygame.Surface | None = None
        self._clock: pygame.time.Clock | None = None

    def show(self, image: ImageArray, fps: float) -> None:
        """Show an image, uint8 (height, width, 3), and wait so that at most `fps` images are shown per second.

        Does nothing once the user has closed the window.

        Raises:
            DisplayError: No window can be opened.
        """
        if self.closed_by_user:
            return
        height, width = image.shape[:2]
        if self._surface is None or self._surface.get_size() != (width, height):
            self._surface = self._open(width, height)
        pygame.surfarray.blit_array(self._surface, image.swapaxes(0, 1))
        pygame.display.flip()
        if self._clock is None:
            self._clock = pygame.time.Clock()
        self._clock.tick(fps)

    def events(self) -> Iterator[pygame.event.Event]:
        """Yield the user's input events since the last call; stop if the user has closed the window."""
        if self._surface is None:
            return
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.close()
                self.closed_by_user = True
                return
            yield event

    def close(self) -> None:
        """Close the window; may be called repeatedly."""
        self._surface = None
        pygame.display.quit()

    def _open(self, width: int, height: int) -> pygame.Surface:
        check_screen()
        try:
            surface = pygame.display.set_mode((width, height))
        except pygame.error as error:
            raise DisplayError(f"no window can be opened: {error}") from None
        pygame.display.set_caption(self.title)
        return surface


def check_screen() -> None:
    """Initialise the display; raise `DisplayError` if there is none, unless the user has set `SDL_VIDEODRIVER`."""
    try:
        pygame.display.init()
    except pygame.error as error:
        raise DisplayError(f"no window can be opened: {error}") from None
    if pygame.display.get_driver() in OFFSCREEN_DRIVERS and not os.environ.get("SDL_VIDEODRIVER"):
        pygame.display.quit()
        raise DisplayError(NO_DISPLAY)


class PlayWindow(Window):
    """Shows the frames of a player and forwards keys and clicks; the Esc key closes it, too."""

    def draw(self, player: Player) -> None:
        """Draw the player's current frame."""
        self._frame, self._scale = player.frame(), player.scale

    def responses(self, player: Player) -> Iterator[tuple[str, str | None]]:
        """Show the drawn frame for a moment, then pass keys and clicks to the player.

        Yields:
            For each event, the name of the key ("" for a click), and the response if the event completed one, else
            None.
        """
        self.show(self._frame, FPS)
        for event in self.events():
            if event.type == pygame.KEYDOWN:
                self.closed_by_user |= event.key == pygame.K_ESCAPE
                key = pygame.key.name(event.key)
                yield key, player.press(key, event.unicode)
            elif event.type == pygame.MOUSEBUTTONDOWN and event.button == pygame.BUTTON_LEFT:
                yield "", player.click(int(event.pos[0] / self._scale), int(event.pos[1] / self._scale))


class Player:
    """Plays episodes one after another."""

    def __init__(self, episode: Episode[Any, Any], title: str = "", keys: str = "") -> None:
        """Start with an episode.

        Args:
            episode: Episode to play, which is modified.
            title: First line of the panel.
            keys: Help on the window's other keys.
        """
        self.title, self.keys = title, keys
        self.scale = 1.0
        self.begin(episode)

    def begin(self, episode: Episode[Any, Any]) -> None:
        """Start an episode, which is modified."""
        self.episode, self.game = episode, episode.game
        self.prompt: str | None = None
        """Prompt of this turn; None for the prompt without history."""
        self.last: Scored[Any, Any] | None = None
        """Result of the previous turn, if known."""
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
        elif not self.typed and (action := self.game.answer.key(key)) is not None:
            return self._respond(answer_only(self.game.answer.format(action)))
        elif text.isprintable():
            self.typed = (self.typed + text)[:LONGEST_TYPED]
        return None

    def click(self, x: int, y: int) -> str | None:
        """Handle a click on a pixel of the image. A second click on a cell, or one off the board, clears the selection.

        Returns:
            See `press`.
        """
        game = self.game
        if self.episode.ended is not None:
            return None
        height, width, _ = game.image_shapes[0]
        if not isinstance(game, BoardGame) or not game.answer.clicks:
            action = game.answer.pointed(x / width, y / height)
            return None if action is None else self._respond(answer_only(game.answer.format(action)))
        cell = game.painter.geometry.cell_at(x % width, y)  # in any of the images
        if cell is None or cell in self.clicks:
            self.clicks = []
            return None
        self.clicks.append(cell)
        if len(self.clicks) < game.answer.clicks:
            return None
        return self._respond(answer_only(game.answer.format(game.answer.clicked(self.clicks))))

    def frame(self) -> ImageArray:
        """Draw the window: the image that a model would get, scaled and with selected cells framed, next to the panel.

        Sets `scale` to the scale of the image.

        Returns:
            uint8 of shape (height, width, 3).
        """
        image = self.image()
        self.scale = magnification(image)
        if self.scale != 1:
            image = resize(image, round(image.shape[0] * self.scale), round(image.shape[1] * self.scale))
        height = max(image.shape[0], SHORTEST_PANEL)
        frame = np.empty((height, image.shape[1] + PANEL_WIDTH, 3), np.uint8)
        frame[:] = image[0, 0]  # surround small images with their page colour
        frame[: image.shape[0], : image.shape[1]] = image
        frame[:, image.shape[1] :] = self.panel(height)
        return frame

    def panel(self, height: int) -> ImageArray:
        """Draw the panel, uint8 of shape (height, PANEL_WIDTH, 3)."""
        episode = self.episode
        canvas = Canvas(PANEL_WIDTH, height, _PAGE)
        canvas.text(self.title, _MARGIN, 30, 12, _INK, align="left", max_width=_INNER)
        outcomes = [f"{outcome.value} {count}" for outcome, count in episode.outcomes.items()]
        counts = [f"seed {episode.seed}", f"turn {episode.turn}", f"score {episode.score:g}", *outcomes]
        canvas.text("   ".join(counts), _MARGIN, 66, 9, _INK, align="left", max_width=_INNER)
        _write(canvas, *last_turn(episode, self.last), 90, 190)
        canvas.text("PROMPT FOR A MODEL", _MARGIN, 216, 8, _ACCENT, align="left")
        bottom = height - 96
        _write(canvas, self.model_prompt(), _INK, 230, bottom)
        text = f"{self.typed}_" if self.typed else "your answer"
        while text_width(text, 11) > _INNER:
            text = text[1:]
        canvas.text(text, _MARGIN, bottom + 28, 11, _INK if self.typed else _FAINT, align="left")
        canvas.text(self.ways(), _MARGIN, height - 26, 8.5, _FAINT, align="left", max_width=_INNER)
        return canvas.pixels()

    def model_prompt(self) -> str:
        """Return the prompt that a model would get."""
        return self.prompt or turn_prompt(self.game, self.episode.state, self.episode.feedback)

    def image(self) -> ImageArray:
        """Return the images that a model would get, side by side, with selected cells framed."""
        image = side_by_side(self.game.images(self.episode.state))
        if isinstance(self.game, BoardGame):
            for row, column in self.clicks:
                x, y, width, height = self.game.painter.geometry.cell_box(row, column)
                cv2.rectangle(image, (x, y, width, height), CLICKED, max(2, width // 16))
        return image

    def _respond(self, response: str) -> str:
        self.last = self.episode.respond(response)
        self.prompt, self.typed, self.clicks = None, "", []
        return response

    def ways(self) -> str:
        """Return help on the ways to answer, and on other keys."""
        game = self.game
        ways = []
        if self.episode.ended is None:
            if any(game.answer.key(arrow) is not None for arrow in ARROWS):
                ways.append("Arrow keys: move.")
            if isinstance(game, BoardGame) and game.answer.clicks:
                ways.append("Click: select cells.")
            ways.append("Type an answer or a whole response; Enter: send.")
        return "  ".join([*ways, self.keys])


def magnification(image: ImageArray) -> float:
    """Return the scale at which an image is displayed."""
    height, width, _ = image.shape
    longer_side, shorter_side = max(height, width), min(height, width)
    if longer_side > LARGEST_SHOWN:
        return float(LARGEST_SHOWN / longer_side)
    return float(max(1, SMALLEST_SHOWN // shorter_side))


def _write(canvas: Canvas, text: str, colour: Colour, top: float, bottom: float) -> None:
    lines, capitals = fit(text, _INNER, bottom - top, _LARGEST_TEXT, _SMALLEST_TEXT)
    write_lines(canvas, lines, _MARGIN, top, capitals, colour)


def last_turn(episode: Episode[Any, Any], last: Scored[Any, Any] | None) -> tuple[str, Colour]:
    """Describe outcome, reward and feedback of the last turn, and why the episode ended; return text and colour."""
    text, colour = "The episode continues." if episode.turn else "No turns yet.", _FAINT
    if last is not None:
        actions: Any = last.action if episode.game.actions_per_turn > 1 else (last.action,)
        action = "" if last.action is None else f" {episode.game.format_actions(actions)}"
        cause = f": {last.feedback}" if last.feedback else ""
        text, colour = f"{last.outcome.value}{action}, reward {last.game:g}{cause}", OUTCOME_COLOURS[last.outcome.value]
    return text if episode.ended is None else f"The episode has ended: {episode.ended}. {text}", colour
