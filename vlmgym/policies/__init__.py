"""Built-in policies, and `make_policy`, which makes a policy from a name or a function."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from vlmgym.errors import UsageError, VlmgymError, did_you_mean
from vlmgym.policies.base import ModelPolicy, Policy, PolicyOptions, Prompt, Reply, StatePolicy, describe_error
from vlmgym.policies.baselines import random_response
from vlmgym.policies.custom import CustomFunction, CustomOptions, CustomPolicy, load_object
from vlmgym.sandbox.core.game import ImageArray

POLICIES = {
    "random": "vlmgym.policies.baselines:RandomPolicy",
    "random-legal": "vlmgym.policies.baselines:RandomLegalPolicy",
    "oracle": "vlmgym.policies.baselines:OraclePolicy",
    "replay": "vlmgym.policies.replay:ReplayPolicy",
    "human": "vlmgym.policies.human:HumanPolicy",
    "openai": "vlmgym.policies.openai.policy:OpenAIPolicy",
    "vllm": "vlmgym.policies.vllm:VLLMPolicy",
    "transformers": "vlmgym.policies.transformers:TransformersPolicy",
}
"""Module and class of each built-in policy, by name. A new policy adds one line."""

PolicySpec = str | CustomFunction | Policy | type[ModelPolicy]
"""A name in `POLICIES`, `MODULE:NAME` or `path/to/file.py:NAME` of a function or policy, or such an object itself."""


def make_policy(choice: PolicySpec, options: PolicyOptions | None = None) -> Policy:
    """Make a policy; `options` have the type given by `options_type`. A `Policy` is returned as is.

    Raises:
        UsageError: The policy is unknown or cannot be loaded.
    """
    if isinstance(choice, Policy):
        return choice
    if isinstance(choice, str) and choice in POLICIES:
        return _class(choice)(options)
    name: str | None = None
    source: Any = choice
    if isinstance(choice, str):
        _reject_unknown(choice)
        name, source = choice, load_object(choice)
    if isinstance(source, type) and issubclass(source, ModelPolicy):
        try:
            source = source()
        except VlmgymError:
            raise
        except Exception as error:
            raise UsageError(f"cannot create {name or source.__name__}: {describe_error(error)}") from error
    if isinstance(source, ModelPolicy):
        source.name = name or source.name
        if isinstance(options, CustomOptions):
            source.timeout = options.timeout
        return source
    if callable(source) and not isinstance(source, type):
        return CustomPolicy(source, name, options)
    raise UsageError(f"{name or source!r} is neither a function nor a ModelPolicy")


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
    policy: type[Policy] = resolve_name(POLICIES[name])
    return policy


def _reject_unknown(name: str) -> None:
    if ":" not in name:
        meant = did_you_mean(name, POLICIES)
        raise UsageError(f"unknown policy {name!r}{meant}; choose {', '.join(POLICIES)} or MODULE:NAME")


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
