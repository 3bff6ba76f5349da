"""The window in which a person plays."""

from __future__ import annotations

from collections.abc import Iterator

import pygame

from vlmgym.sandbox.envs.human.player import Player
from vlmgym.sandbox.envs.window import Window

FPS = 30


class Seat:
    """Shows what a player sees, and hands them what the person does."""

    def __init__(self, title: str) -> None:
        """Prepare the window; it opens when it first shows something."""
        self._window = Window(title, needs_screen=True)
        self._quit = False

    @property
    def left(self) -> bool:
        """Whether the person has closed the window, or pressed Esc."""
        return self._quit or self._window.closed_by_user

    def look(self, player: Player) -> None:
        """Draw what the player sees now."""
        self._frame, self._scale = player.frame(), player.scale

    def presses(self, player: Player) -> Iterator[tuple[str, str | None]]:
        """Show what was drawn for a moment, then hand the player each press of a key or the mouse.

        Yields:
            The key's name, empty for the mouse, and the response that was complete with it, if one was.

        Raises:
            DisplayError: There is no screen.
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
