"""The window for human play."""

from __future__ import annotations

from collections.abc import Iterator

import pygame

from vlmgym.sandbox.envs.human.player import Player
from vlmgym.sandbox.envs.window import Window

FPS = 30


class PlayWindow:
    """Shows the frames of a player and forwards keys and clicks."""

    def __init__(self, title: str) -> None:
        """Prepare the window; it opens when the first frame is shown."""
        self._window = Window(title, needs_screen=True)
        self._quit = False

    @property
    def closed(self) -> bool:
        """True once the window has been closed or Esc has been pressed."""
        return self._quit or self._window.closed_by_user

    def draw(self, player: Player) -> None:
        """Draw the player's current frame."""
        self._frame, self._scale = player.frame(), player.scale

    def events(self, player: Player) -> Iterator[tuple[str, str | None]]:
        """Show the drawn frame for a moment, then pass keys and clicks to the player.

        Yields:
            For each event, the name of the key ("" for a click), and the response if the event completed one, else
            None.

        Raises:
            DisplayError: There is no display.
        """
        self._window.show(self._frame, FPS)
        for event in self._window.events():
            if event.type == pygame.KEYDOWN:
                self._quit = self._quit or event.key == pygame.K_ESCAPE
                key = pygame.key.name(event.key)
                yield key, player.press(key, event.unicode)
            elif event.type == pygame.MOUSEBUTTONDOWN and event.button == pygame.BUTTON_LEFT:
                yield "", player.click(int(event.pos[0] / self._scale), int(event.pos[1] / self._scale))

    def close(self) -> None:
        """Close the window."""
        self._window.close()
