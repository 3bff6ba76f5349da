"""A window for the `human` render mode and `vlmgym play`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import numpy as np
import pygame
from numpy.typing import NDArray

from vlmgym.errors import DisplayError

_log = logging.getLogger("vlmgym")

OFFSCREEN_DRIVERS = ("dummy", "offscreen")
"""SDL video drivers that draw off screen. Without a display, SDL falls back to the second."""

NO_DISPLAY = "there is no display for a window: DISPLAY and WAYLAND_DISPLAY are not set"


class Window:
    """A window that shows images. Pygame has one window per process, so a second `Window` replaces the first.

    The display is initialised by the first `show`. Only pygame's display module is started and stopped; the font
    module, which rendering uses, stays initialised.
    """

    def __init__(self, title: str, *, needs_screen: bool = False) -> None:
        """Prepare a window; it opens with the first image.

        Without a display, `show` logs a warning, or raises `DisplayError` if `needs_screen` is set.
        """
        self.title = title
        self.needs_screen = needs_screen
        self.closed_by_user = False
        self._surface: pygame.Surface | None = None
        self._clock: pygame.time.Clock | None = None

    def show(self, image: NDArray[np.uint8], fps: float) -> None:
        """Show an image, uint8 (height, width, 3), and wait so that at most `fps` images are shown per second.

        Does nothing once the user has closed the window.

        Raises:
            DisplayError: There is no display, and `needs_screen` is set or SDL fails without one.
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
        if self._surface is not None:
            self._surface = None
            pygame.display.quit()

    def _open(self, width: int, height: int) -> pygame.Surface:
        try:
            pygame.display.init()
            surface = pygame.display.set_mode((width, height))
        except pygame.error as error:
            raise DisplayError(f"no window can be opened: {error}") from None
        if self._surface is None and _is_offscreen():
            if self.needs_screen:
                pygame.display.quit()
                raise DisplayError(NO_DISPLAY)
            _log.warning("%s; drawing off screen", NO_DISPLAY)
        pygame.display.set_caption(self.title)
        return surface


def check_screen() -> None:
    """Raise `DisplayError` unless a window can be opened on a display."""
    try:
        pygame.display.init()
    except pygame.error as error:
        raise DisplayError(f"no window can be opened: {error}") from None
    offscreen = _is_offscreen()
    pygame.display.quit()
    if offscreen:
        raise DisplayError(NO_DISPLAY)


def _is_offscreen() -> bool:
    """Return True if SDL draws off screen although the user has not set `SDL_VIDEODRIVER`."""
    return pygame.display.get_driver() in OFFSCREEN_DRIVERS and not os.environ.get("SDL_VIDEODRIVER")
