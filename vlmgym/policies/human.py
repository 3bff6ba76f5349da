"""A human player in a window."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from vlmgym.errors import PolicyError
from vlmgym.policies.base import ModelPolicy, Prompt, Reply
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.prompt import PromptConfig

if TYPE_CHECKING:  # these import pygame, and the command line reads the options of every policy
    from vlmgym.sandbox.envs.human import Player

FINAL_STATE_SECONDS = 2.0
"""Seconds for which the final state of an episode is shown, unless a key is pressed."""


class HumanPolicy(ModelPolicy):
    """Shows the current image and the prompt; keys, clicks and typed text are the responses.

    Episodes are played one at a time, and images of earlier turns are not shown. Closing the window ends the run; the
    finished turns are kept, and the run can be resumed.
    """

    name = "human"
    transform = None
    max_concurrency = 1

    def check(self, game: Game[Any, Any]) -> None:
        """Check that there is a display.

        Raises:
            DisplayError: There is no display.
        """
        from vlmgym.sandbox.envs.human import check_screen

        check_screen()

    def supports_prompts(self, prompts: PromptConfig) -> bool:
        """Return False for all but the image of the current turn, which is all that the window shows."""
        return (
            (prompts.observation, prompts.images, prompts.skin) == ("image", "true", "flat")
            and not prompts.chat
            and not prompts.image_turns
        )

    async def open(self) -> None:
        """Prepare the window."""
        from vlmgym.sandbox.envs.human import PlayWindow

        self._window = PlayWindow("vlmgym: your turn")
        self._player: Player | None = None

    async def close(self) -> None:
        """Close the window."""
        self._window.close()

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Wait for the player's response.

        Raises:
            PolicyError: The window was closed.
            DisplayError: The display was lost.
        """
        assert prompt.snapshot is not None, "evaluations set it"
        player = self._begin(prompt, prompt.snapshot)
        start = time.perf_counter()
        self._window.draw(player)
        while not self._window.closed_by_user:
            has_changed = False
            for _, response in self._window.responses(player):
                if response is not None:
                    latency = time.perf_counter() - start
                    self._window.draw(player)
                    await self._show_final_state(player)
                    return Reply(response, latency=latency)
                has_changed = True
            if has_changed:
                self._window.draw(player)
            await asyncio.sleep(0)  # lets Ctrl-C through
        raise PolicyError("the window was closed")

    def _begin(self, prompt: Prompt, snapshot: Snapshot) -> Player:
        """Return the player of this turn, which shows the result of the previous turn."""
        from vlmgym.sandbox.envs.human import Player

        episode = Episode.restore(prompt.game, snapshot)
        previous, player = self._player, Player(episode, f"{prompt.game.id}, an evaluation", "Esc: stop the run.")
        player.prompt = str(prompt)
        if previous is not None and (previous.game, previous.episode.snapshot()) == (prompt.game, snapshot):
            player.last = previous.last
        self._player = player
        return player

    async def _show_final_state(self, player: Player) -> None:
        """Show the final state for a few seconds, or until a key is pressed."""
        start = time.perf_counter()
        while (
            player.episode.ended is not None
            and not self._window.closed_by_user
            and time.perf_counter() - start < FINAL_STATE_SECONDS
        ):
            if any(key for key, _ in self._window.responses(player)):
                return
            await asyncio.sleep(0)
