"""Settings of episodes and runs, and limits of tokens and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vlmgym.checks import MAX_COUNT, check_instance, to_int
from vlmgym.errors import PolicyError, UsageError
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.sandbox.core.reward import RewardConfig

if TYPE_CHECKING:
    from vlmgym.policies.base import Reply
    from vlmgym.runs.record import TurnRecord


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Token prices and spending limits. Requests that are running when a limit is reached still count."""

    price_in: float | None = None
    """Price per million prompt tokens, including images, in any currency."""
    price_out: float | None = None
    """Price per million completion tokens."""
    budget_tokens: int | None = None
    """Stop after this many tokens, prompts and completions together."""
    budget_cost: float | None = None
    """Stop after this cost; requires both prices."""

    def __post_init__(self) -> None:
        for name in ("price_in", "price_out", "budget_tokens", "budget_cost"):
            value = getattr(self, name)
            if value is not None and not (0 <= value < math.inf):
                raise UsageError(f"{name} must be finite and at least 0, got {value!r}")
            if value == 0 and name.startswith("budget"):
                raise UsageError(f"{name} must be above 0, got {value!r}")
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("price_in and price_out must be given together")
        if self.budget_cost is not None and self.price_in is None:
            raise UsageError("budget_cost requires price_in and price_out")

    def after(self, tokens: int, cost: float) -> Budget:
        """Return what is left of the limits, at least a little, after spending tokens and cost."""
        return replace(
            self,
            budget_tokens=None if self.budget_tokens is None else max(1, self.budget_tokens - tokens),
            budget_cost=None if self.budget_cost is None else max(1e-12, self.budget_cost - cost),
        )


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings(PromptConfig):
    """How an episode of any game is played: contents of the prompts, turn limit, and reward."""

    max_turns: int = 100
    """Turn limit of an episode; illegal and unparsable responses count."""
    reward: Annotated[RewardConfig, tyro.conf.Suppress] = field(default_factory=RewardConfig)
    """Weights and shaping of the reward; they do not affect the score. The command line has them in vlmgym rescore."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "max_turns", to_int("max_turns", self.max_turns, 1))
        object.__setattr__(self, "reward", RewardConfig.model_validate(self.reward))  # accepts a mapping

    @classmethod
    def from_parts(cls, prompts: PromptConfig, max_turns: int, reward: RewardConfig) -> EpisodeSettings:
        """Make settings from the parts that records store."""
        return cls(**asdict(prompts.prompts), max_turns=max_turns, reward=reward)

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[EpisodeSettings, dict[str, Any]]:
        """Separate the settings among keyword arguments from the others, which are levels and fields of the game."""
        names = {field.name for field in fields(cls)}
        settings = cls(**{name: value for name, value in options.items() if name in names})
        return settings, {name: value for name, value in options.items() if name not in names}


@dataclass(frozen=True, kw_only=True)
class RunSettings(EpisodeSettings):
    """Settings of the episodes of a run."""

    episodes: int = 10
    """Episodes per game, with seeds seed, seed + 1, ..."""
    seed: int = 0
    """Seed of the first episode."""
    concurrency: int = 64
    """Maximum number of concurrent episodes."""
    budget: Annotated[Budget, tyro.conf.OmitArgPrefixes] = field(default_factory=Budget)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, minimum in (("episodes", 1), ("seed", 0), ("concurrency", 1)):
            object.__setattr__(self, name, to_int(name, getattr(self, name), minimum))
        if self.episodes > MAX_COUNT:
            raise UsageError(f"episodes must be at most {MAX_COUNT}, got {self.episodes}")
        check_instance("budget", self.budget, Budget)

    @property
    def episode(self) -> EpisodeSettings:
        """The settings of each episode."""
        return EpisodeSettings.from_parts(self.prompts, self.max_turns, self.reward)


class Usage:
    """Tokens and cost of a run so far."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tokens, self.cost = 0, 0.0

    def price(self, reply: Reply, policy: str) -> float | None:
        """Compute the cost of a reply; None if no prices are set.

        Raises:
            PolicyError: A price or budget is set, but the reply has no token counts.
        """
        budget = self.budget
        has_limits = budget.budget_tokens is not None or budget.price_in is not None
        if has_limits and (reply.prompt_tokens is None or reply.completion_tokens is None):
            raise PolicyError(
                f"prices and budgets need prompt_tokens and completion_tokens in every Reply; {policy} gave none"
            )
        if budget.price_in is None or budget.price_out is None:
            return None
        return ((reply.prompt_tokens or 0) * budget.price_in + (reply.completion_tokens or 0) * budget.price_out) / 1e6

    def add(self, turn: TurnRecord) -> None:
        """Add the tokens and cost of a turn."""
        self.tokens += (turn.prompt_tokens or 0) + (turn.completion_tokens or 0)
        self.cost += turn.cost or 0.0

    @property
    def exceeded(self) -> str | None:
        """Message about the exhausted budget, or None."""
        budget = self.budget
        if budget.budget_tokens is not None and self.tokens >= budget.budget_tokens:
            return f"the budget of {budget.budget_tokens:,} tokens is used up"
        if budget.budget_cost is not None and self.cost >= budget.budget_cost:
            return f"the budget of {budget.budget_cost:,.6g} is used up"
        return None
