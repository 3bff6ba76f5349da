"""Train and evaluate on whole episodes with VAGEN; docs/integrations/vagen.md."""

from __future__ import annotations

import asyncio
from typing import Any

from vagen.envs.gym_image_env import GymImageEnv

from vlmgym import Episode
from vlmgym.errors import UsageError

IMAGE = "<image>"
SYSTEM_PROMPT = "You play a game. Each message shows one turn of it and asks for your response."


class GameEnvironment(GymImageEnv):
    """A VAGEN environment whose actions are responses.

    Args:
        env_config: `config` of an environment in VAGEN's files: the arguments of `Episode` except `seed`, and
            `success_score`, the minimum score at which an ended episode counts as a success. Without `success_score`,
            no episode counts as a success.

    Raises:
        UsageError: `game` is missing. `reset` reports other invalid arguments.
    """

    def __init__(self, env_config: dict[str, Any]) -> None:
        super().__init__(env_config)
        settings = dict(env_config)
        if "game" not in settings:
            raise UsageError("config needs game, such as game: '2048'")
        self._success_score = settings.pop("success_score", float("inf"))
        self._settings = settings
        self._episode: Episode | None = None

    async def system_prompt(self) -> dict[str, Any]:
        """Return the system prompt. In a chat, it contains the rules; otherwise, the message of each turn does."""
        assert self._episode is not None, "VAGEN resets first"
        message, *_ = self._episode.messages()
        return {"obs_str": _escape(message["content"][-1]["text"]) if message["role"] == "system" else SYSTEM_PROMPT}

    async def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode in a thread, so that other episodes in VAGEN's event loop continue.

        Raises:
            UsageError: The config is invalid, or the game repeats earlier turns by default and the config does not set
                `history`.
        """
        self._episode = await asyncio.to_thread(Episode, seed=seed, **self._settings)
        if self._episode.repeats_turns and "history" not in self._settings:
            raise UsageError(
                "a growing conversation already keeps earlier turns: set history: 0 or chat: true in config, or "
                f"history: {self._episode.game.history} for one conversation per turn"
            )
        return await asyncio.to_thread(_observe, self._episode), {}

    async def step(self, action_str: str) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        """Take a turn with the model's response."""
        assert self._episode is not None, "VAGEN resets first"
        episode = self._episode
        scored = await asyncio.to_thread(episode.respond, action_str)
        info = {
            "success": episode.done and episode.score >= self._success_score,
            "score": episode.score,
            "outcome": scored.outcome.value,
            "feedback": scored.feedback,
            **episode.accuracies,
        }
        return await asyncio.to_thread(_observe, episode), scored.total, episode.done, info

    async def close(self) -> None:
        """Do nothing: an episode holds no resources."""


def _observe(episode: Episode) -> dict[str, Any]:
    if episode.done:
        return {"obs_str": f"The episode has ended: {episode.end_reason}."}
    *images, text = episode.messages("pil")[-1]["content"]
    return {
        "obs_str": IMAGE * len(images) + _escape(text["text"]),
        "multi_modal_input": {IMAGE: [part["image"] for part in images]},
    }


def _escape(text: str) -> str:
    """Escape placeholders that past responses or a custom prompt may contain, because VAGEN counts placeholders."""
    return text.replace(IMAGE, "&lt;image&gt;").replace("<video>", "&lt;video&gt;")
