"""What a run may spend on a model, and what it has spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlmgym.errors import PolicyError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.records.episode import TurnRecord


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Prices of tokens, and how much a run may use; what was asked before the limit is still answered and kept."""

    price_in: float | None = None
    """Price of a million tokens of prompts and images, in any currency."""
    price_out: float | None = None
    """Price of a million tokens of responses."""
    budget_tokens: int | None = None
    """Stop when prompts and responses together have used this many tokens."""
    budget_cost: float | None = None
    """Stop when the tokens have cost this much; needs both prices."""

    def __post_init__(self) -> None:
        for name in ("price_in", "price_out", "budget_tokens", "budget_cost"):
            value = getattr(self, name)
            if value is not None and not (0 <= value < math.inf):
                raise UsageError(f"{name} is a number of at least 0, not {value!r}")
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("price_in and price_out are given together or not at all")
        if self.budget_cost is not None and self.price_in is None:
            raise UsageError("budget_cost needs price_in and price_out")


class Spent:
    """Tokens and cost of the turns of a run so far."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tokens, self.cost = 0, 0.0

    def price(self, reply: Reply, policy: str) -> float | None:
        """Price of a reply; None without prices.

        Raises:
            PolicyError: There is a budget or a price, and the policy did not say how many tokens it used.
        """
        budget = self.budget
        limited = budget.budget_tokens is not None or budget.price_in is not None
        if limited and (reply.prompt_tokens is None or reply.completion_tokens is None):
            fields = "prompt_tokens and completion_tokens of its Reply"
            raise PolicyError(
                f"{policy} does not say how many tokens it used ({fields}), which a price or a budget needs"
            )
        if budget.price_in is None or budget.price_out is None:
            return None
        return ((reply.prompt_tokens or 0) * budget.price_in + (reply.completion_tokens or 0) * budget.price_out) / 1e6

    def add(self, turn: TurnRecord) -> None:
        """Count a turn."""
        self.tokens += (turn.prompt_tokens or 0) + (turn.completion_tokens or 0)
        self.cost += turn.cost or 0.0

    @property
    def over(self) -> str | None:
        """Which budget is used up, in words, or None."""
        budget = self.budget
        if budget.budget_tokens is not None and self.tokens >= budget.budget_tokens:
            return f"the budget of {budget.budget_tokens:,} tokens is used up"
        if budget.budget_cost is not None and self.cost >= budget.budget_cost:
            return f"the budget of {budget.budget_cost:,.6g} is used up"
        return None
