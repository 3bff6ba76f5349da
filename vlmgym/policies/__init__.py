"""Policies and how one is chosen by a word."""

from __future__ import annotations

from importlib import import_module

from vlmgym.errors import UsageError
from vlmgym.policies.base import ModelPolicy, Policy, PolicyOptions, Prompt, Reply, StatePolicy
from vlmgym.policies.custom import CustomFunction, CustomOptions, CustomPolicy, load_function
from vlmgym.policies.random import random_response
from vlmgym.sandbox.core.game import ImageArray

POLICIES = {
    "random": "vlmgym.policies.random:RandomPolicy",
    "random-legal": "vlmgym.policies.random:RandomLegalPolicy",
    "oracle": "vlmgym.policies.oracle:OraclePolicy",
    "replay": "vlmgym.policies.replay:ReplayPolicy",
    "human": "vlmgym.policies.human:HumanPolicy",
    "openai": "vlmgym.policies.openai:OpenAIPolicy",
    "vllm": "vlmgym.policies.vllm:VLLMPolicy",
    "transformers": "vlmgym.policies.transformers:TransformersPolicy",
}
"""Name of every built-in policy and where its class is. A new policy adds one line."""

PolicySpec = str | CustomFunction | Policy
"""A name in `POLICIES`, `MODULE:FUNCTION`, `path/to/file.py:FUNCTION`, a function, or a policy."""


def make_policy(choice: PolicySpec, options: PolicyOptions | None = None) -> Policy:
    """A policy from its name, from `MODULE:FUNCTION`, or from a function.

    Args:
        choice: Which; a policy that is made already takes no options.
        options: Options of the type `options_type` tells; None: defaults.

    Raises:
        UsageError: There is no such policy, or it does not load.
    """
    if isinstance(choice, Policy):
        return choice
    if callable(choice):
        return CustomPolicy(choice, options=options)
    if choice in POLICIES:
        return _class(choice)(options)
    _refuse_unknown(choice)
    return CustomPolicy(load_function(choice), choice, options)


def options_type(choice: PolicySpec) -> type[PolicyOptions]:
    """The type of a policy's options; a user's function is not loaded for it.

    Raises:
        UsageError: There is no such policy.
    """
    if isinstance(choice, Policy):
        return choice.Options
    if isinstance(choice, str):
        if choice in POLICIES:
            return _class(choice).Options
        _refuse_unknown(choice)
    return CustomOptions


def _class(name: str) -> type[Policy]:
    module, _, attribute = POLICIES[name].partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def _refuse_unknown(name: str) -> None:
    if ":" not in name:
        raise UsageError(f"there is no policy {name!r}; choose {', '.join(POLICIES)} or MODULE:FUNCTION")


__all__ = [
    "POLICIES",
    "CustomFunction",
    "CustomOptions",
    "CustomPolicy",
    "ModelPolicy",
    "ImageArray",
    "Policy",
    "PolicySpec",
    "PolicyOptions",
    "Prompt",
    "Reply",
    "StatePolicy",
    "make_policy",
    "options_type",
    "random_response",
]
