"""Policies and how one is chosen by a word."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.policies.base import ModelPolicy, Prompt, Reply, StatePolicy
from vlmgym.policies.custom import CustomFunction, CustomPolicy, load_function
from vlmgym.policies.random import random_response
from vlmgym.sandbox.game import Game

Policy = StatePolicy | ModelPolicy

POLICIES = {
    "random": "vlmgym.policies.random:RandomPolicy",
    "random-legal": "vlmgym.policies.random:RandomLegalPolicy",
    "oracle": "vlmgym.policies.oracle:OraclePolicy",
}
"""Name of every built-in policy and where its class is. A new policy adds one line."""


def make_policy(policy: str | CustomFunction | Policy, game: Game[Any, Any], timeout: float = 300.0) -> Policy:
    """A policy for a game from its name, from `MODULE:FUNCTION`, or from a function.

    Args:
        policy: A name in `POLICIES`, `MODULE:FUNCTION`, `path/to/file.py:FUNCTION`, a function, or a policy object.
        game: The game that it is to play.
        timeout: Seconds that one call of a function may take.

    Raises:
        UsageError: There is no such policy, it does not load, or it cannot play this game.
    """
    made = _find(policy, timeout)
    if isinstance(made, StatePolicy):
        made.check(game)
    return made


def _find(policy: str | CustomFunction | Policy, timeout: float) -> Policy:
    if isinstance(policy, StatePolicy | ModelPolicy):
        return policy
    if callable(policy):
        return CustomPolicy(policy, timeout=timeout)
    if policy in POLICIES:
        module, _, attribute = POLICIES[policy].partition(":")
        made: Policy = getattr(import_module(module), attribute)()
        return made
    if ":" in policy:
        return CustomPolicy(load_function(policy), policy, timeout)
    raise UsageError(f"there is no policy {policy!r}; choose {', '.join(POLICIES)} or MODULE:FUNCTION")


__all__ = [
    "POLICIES",
    "CustomFunction",
    "ModelPolicy",
    "Policy",
    "Prompt",
    "Reply",
    "StatePolicy",
    "make_policy",
    "random_response",
]
