"""Train on whole episodes with SkyRL; docs/integrations/skyrl.md. Importing this module registers `vlmgym`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlmgym.errors import UsageError, importing
from vlmgym.integrations import restore_row

with importing("vlmgym.integrations.skyrl", "skyrl"):
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput


class GameEnvironment(BaseTextEnv):
    """A SkyRL-gym environment: each turn is a user message with images.

    The rows of the dataset come from `vlmgym.make_dataset`. Their snapshots give all rollouts of a group the same
    initial state and randomness.

    Args:
        env_config: Unused.
        extras: The columns of a row, and `max_turns`, which SkyRL sets to `generator.max_turns`.

    Raises:
        UsageError: The row has no snapshot, its prompts are not chats and repeat earlier turns, or
            `generator.max_turns` is below the turn limit of the episode.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        self._episode = restore_row(extras.get("snapshot"))
        self.max_turns = self._episode.max_turns
        if (limit := extras.get("max_turns", self.max_turns)) < self.max_turns:
            raise UsageError(
                f"generator.max_turns must be at least the max_turns of make_dataset, {self.max_turns}, got {limit}"
            )

    def init(self, prompt: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the messages of the first turn; the row's prompt has no images and only serves to filter by length."""
        return self._episode.messages(), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take a turn with the model's response."""
        scored = self._episode.respond(action)
        self.turns = self._episode.turn
        return BaseTextEnvStepOutput(
            observations=[] if self._episode.done else self._episode.messages()[-1:],
            reward=scored.total,
            done=self._episode.done,
            metadata={"outcome": scored.outcome.value, "feedback": scored.feedback},
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return the score, the number of turns, in total and per outcome, and accuracies; SkyRL logs their means."""
        episode = self._episode
        return {"score": episode.score, "turns": self.turns, **episode.outcomes, **episode.accuracies}


skyrl_gym.register(id="vlmgym", entry_point=GameEnvironment)
