"""Wrappers of the Gymnasium environment."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
from gymnasium import spaces

from vlmgym.errors import UsageError
from vlmgym.sandbox.envs.single import GameEnv, Response

LONGEST_RESPONSE = 2**16
"""Maximum response length in the action space. `step` also accepts longer responses and any Unicode text."""


class ResponseWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes a model's responses as actions: the action space is text, and `info["prompt"]` has the prompt.

    Wrappers between this one and the environment, such as a time limit, get `Response` objects as actions.

        env = ResponseWrapper(gymnasium.make("vlmgym/2048-v0"))
        image, info = env.reset(seed=0)
        image, reward, terminated, truncated, info = env.step(model(image, info["prompt"]))
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment of vlmgym.

        Raises:
            UsageError: The environment is not a `GameEnv`.
        """
        if not isinstance(env.unwrapped, GameEnv):
            raise UsageError(f"ResponseWrapper needs a vlmgym environment, got {env}")
        super().__init__(env)
        self.game_env = env.unwrapped
        self.action_space = spaces.Text(LONGEST_RESPONSE, min_length=0, charset=string.printable)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Same as `GameEnv.reset`, with `prompt` in the info."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "prompt": self.game_env.prompt()}

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a turn with a response, which may be unparsable.

        Raises:
            UsageError: The response is not a string.
            EpisodeEnded: The episode has ended; call `reset`.
        """
        if not isinstance(action, str):
            raise UsageError(f"a response must be a string, got {type(action).__name__}")
        observation, reward, terminated, truncated, info = self.env.step(Response(action))
        return observation, reward, terminated, truncated, {**info, "prompt": self.game_env.prompt()}
