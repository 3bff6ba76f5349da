"""A person at a window plays the evaluation."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from vlmgym.errors import PolicyError
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.human.player import Player
from vlmgym.sandbox.envs.human.session import Seat
from vlmgym.sandbox.envs.window import check_screen

LAST_LOOK = 2.0
"""Seconds that the final position of an episode stays, unless a key is pressed."""


class HumanPolicy(ModelPolicy):
    """Shows the position and what a model is told; keys, clicks and typed text are the responses.

    One episode after another is played. The person sees the position as the game draws it in this process, and of
    earlier turns no images again. Closing the window ends the run; what was played is kept, and can be gone on with.
    """

    name = "human"
    look = None
    max_concurrency = 1
    supports_history_images = False

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._seat: Seat | None = None
        self._player: Player | None = None

    def check(self, game: Game[Any, Any]) -> None:
        """Refuse to play where there is no screen.

        Raises:
            DisplayError: There is none.
        """
        check_screen()

    async def open(self) -> None:
        """Prepare the window."""
        self._seat = Seat("vlmgym: your turn")

    async def close(self) -> None:
        """Close the window."""
        if self._seat is not None:
            self._seat.close()
        self._seat = self._player = None

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """What the person does.

        Raises:
            PolicyError: They closed the window.
            DisplayError: The screen is gone.
        """
        if self._seat is None or prompt.snapshot is None:
            raise PolicyError("a person plays in evaluations only")
        player = self._begin(prompt, prompt.snapshot)
        asked = time.perf_counter()
        self._seat.look(player)
        while not self._seat.left:
            changed = False
            for _, response in self._seat.presses(player):
                if response is not None:
                    latency = time.perf_counter() - asked
                    self._seat.look(player)
                    await self._last_look(self._seat, player)
                    return Reply(response, latency=latency)
                changed = True
            if changed:
                self._seat.look(player)
            await asyncio.sleep(0)  # Ctrl-C
        raise PolicyError("the window was closed")

    def _begin(self, prompt: Prompt, snapshot: Snapshot) -> Player:
        """The player at this turn; what became of the turn before is told if it was theirs."""
        episode = Episode.restore(prompt.game, snapshot)
        last, before = None, self._player
        if before is not None and (before.game, before.episode.snapshot()) == (prompt.game, snapshot):
            last = before.last
        self._player = Player(episode, f"{prompt.game.id}, an evaluation", "Esc: stop the run.")
        self._player.begin(episode, str(prompt), last)
        return self._player

    async def _last_look(self, seat: Seat, player: Player) -> None:
        """Leave an ended episode on the screen for a moment."""
        shown = time.perf_counter()
        while player.episode.ended is not None and not seat.left and time.perf_counter() - shown < LAST_LOOK:
            if any(key for key, _ in seat.presses(player)):
                return
            await asyncio.sleep(0)
