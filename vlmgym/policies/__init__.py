"""Built-in policies, and `make_policy`, which makes a policy from a name or a function."""

from __future__ import annotations

from importlib import import_module

from vlmgym.errors import UsageError, did_you_mean
from vlmgym.policies.base import ModelPolicy, Policy, PolicyOptions, Prompt, Reply, StatePolicy
from vlmgym.policies.baselines import random_response
from vlmgym.policies.custom import CustomFunction, CustomOptions, CustomPolicy, load_function
from vlmgym.sandbox.core.game import ImageArray

POLICIES = {
    "random": "vlmgym.policies.baselines:RandomPolicy",
    "random-legal": "vlmgym.policies.baselines:RandomLegalPolicy",
    "oracle": "vlmgym.policies.baselines:OraclePolicy",
    "replay": "vlmgym.policies.replay:ReplayPolicy",
    "human": "vlmgym.policies.human:HumanPolicy",
    "openai": "vlmgym.policies.openai:OpenAIPolicy",
    "vllm": "vlmgym.policies.vllm:VLLMPolicy",
    "transformers": "vlmgym.policies.transformers:TransformersPolicy",
}
"""Module and class of each built-in policy, by name. A new policy adds one line."""

PolicySpec = str | CustomFunction | Policy
"""A name in `POLICIES`, `MODULE:FUNCTION`, `path/to/file.py:FUNCTION`, a function, or a policy."""


def make_policy(choice: PolicySpec, options: PolicyOptions | None = None) -> Policy:
    """Make a policy; `options` have the type given by `options_type`. A `Policy` is returned as is.

    Raises:
        UsageError: The policy is unknown or cannot be loaded.
    """
    if isinstance(choice, Policy):
        return choice
    if callable(choice):
        return CustomPolicy(choice, options=options)
    if choice in POLICIES:
        return _class(choice)(options)
    _reject_unknown(choice)
    return CustomPolicy(load_function(choice), choice, options)


def options_type(choice: PolicySpec) -> type[PolicyOptions]:
    """Return the type of a policy's options, without loading the user's function.

    Raises:
        UsageError: The policy is unknown.
    """
    if isinstance(choice, Policy):
        return choice.Options
    if isinstance(choice, str):
        if choice in POLICIES:
            return _class(choice).Options
        _reject_unknown(choice)
    return CustomOptions


def _class(name: str) -> type[Policy]:
    module, _, attribute = POLICIES[name].partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def _reject_unknown(name: str) -> None:
    if ":" not in name:
        meant = did_you_mean(name, POLICIES)
        raise UsageError(f"unknown policy {name!r}{meant}; choose {', '.join(POLICIES)} or MODULE:FUNCTION")


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
