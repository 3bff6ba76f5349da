"""Configuration of Gymnasium environments."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import field_validator

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import LIST, GameConfig, setting
from vlmgym.sandbox.core.degradation import DegradedConfig


class GymConfig(DegradedConfig):
    """Configuration of an environment. There are no reasoning levels: choose another environment or other options."""

    env: str = setting("FrozenLake-v1", "Id of the environment, set by the game id.")
    options: Annotated[tuple[str, ...], LIST] = setting((), "Arguments of gymnasium.make: NAME=VALUE, comma-separated.")
    frame_skip: int = setting(1, "Number of times that each action is repeated.", ge=1, le=1000)
    frames: int = setting(1, "Number of most recent frames that each turn shows.", ge=1, le=16)
    sticky: float = setting(
        0.0, "Probability that the environment repeats the last action instead of the chosen one.", ge=0.0, lt=1.0
    )
    box_values: int = setting(5, "Number of evenly spaced values of each dimension of a Box.", ge=2, le=101)
    actions: tuple[tuple[str, ...], ...] = setting(
        (), "Names of the actions, comma-separated; dimensions are separated by semicolons."
    )
    rules: str | None = setting(None, "Rules in the prompt, replacing those of the family.", max_length=20_000)
    invalid: float | None = setting(
        None, "Reward of an invalid response, replacing that of the family; at most the lowest reward of a step."
    )
    running: int = setting(
        128,
        "Maximum number of environments kept running per process; not stored in records.",
        ge=1,
        le=65536,
        exclude=True,
    )

    @classmethod
    def at(cls, /, perception: int = 3, reasoning: int = 3, **overrides: Any) -> GameConfig:
        if reasoning != 3:
            raise UsageError(
                "environments have no reasoning levels: leave reasoning at 3, and choose another environment or options"
            )
        return super().at(perception, reasoning, **overrides)

    @field_validator("actions", mode="before")
    @classmethod
    def _split_actions(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(tuple(names.split(",")) for names in value.split(";"))
        return tuple(map(tuple, value)) if isinstance(value, list) else value
