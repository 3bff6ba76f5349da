"""Options of `vlmgym eval` and the evaluation scripts, which depend on the policy."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from vlmgym.errors import UsageError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.policies import POLICIES, CustomFunction, PolicyOptions, PolicySpec, options_type


def policy_options(args: Sequence[str] | None, custom_policy: CustomFunction | None = None) -> type[PolicyOptions]:
    """Return the options type of the policy named on a command line."""
    named = option_value("--policy", args)
    policy = named if named is not None else custom_policy or "random"
    options = options_type(policy)
    _reject_options_of_others(sys.argv[1:] if args is None else args, policy, options)
    return options


def option_value(option: str, args: Sequence[str] | None) -> str | None:
    """Find the value of an option on a command line, before all options are known."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(option, f"--{option[2:].replace('-', '_')}", dest="value")  # tyro accepts both
    try:
        value: str | None = parser.parse_known_args(args)[0].value
    except argparse.ArgumentError:
        return None  # the main parser reports an option without a value
    return value


def _reject_options_of_others(args: Sequence[str], policy: PolicySpec, options: type[PolicyOptions]) -> None:
    """Reject options of other policies, and name the policies that have them."""
    own = {"--help", *_names(options), *_names(EvalConfig)}
    for word in args:
        option = word.partition("=")[0].replace("_", "-")
        if option in own or not option.startswith("--"):
            continue
        owners = [name for name in (*POLICIES, "MODULE:FUNCTION") if option in _names(options_type(name))]
        if owners:
            chosen = policy if isinstance(policy, str) else "of this script"
            also = f" (or {', '.join(owners[1:])})" if owners[1:] else ""
            raise UsageError(f"{option} is not an option of the {chosen} policy: choose --policy {owners[0]}{also}")


def _names(options: type[Any]) -> list[str]:
    """List the command-line options of a type."""
    return [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(options)]


def with_options(config: type[EvalConfig], options: type[PolicyOptions]) -> Any:
    """Combine two option types into one with fields `config` and `options`, without prefixes on the command line."""
    flat = tyro.conf.arg(name="")
    fields = [("config", Annotated[config, flat]), ("options", Annotated[options, flat])]
    made = dataclasses.make_dataclass(config.__name__, fields, frozen=True)
    made.__doc__ = config.__doc__
    return made
