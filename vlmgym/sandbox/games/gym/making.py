"""Make Gymnasium environments from a configuration, and report each failure in one sentence."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
from gymnasium.wrappers import StickyAction

from vlmgym.errors import UsageError, VlmgymError, first_line
from vlmgym.sandbox.core.config import parse_config_fields
from vlmgym.sandbox.games.gym.family import find_words, import_module_of

Env = gymnasium.Env[Any, Any]

MODE = "rgb_array"

# Environments initialise all of pygame; without sound hardware, ALSA would print pages of errors.
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


def check_id(env_id: str) -> None:
    """Check an environment id from a command line or a record.

    For `module:Env-v0`, Gymnasium would import the module; a record from someone else must not cause that.

    Raises:
        UsageError: The id names a module to import, has no version, or is not registered by a known package.
    """
    if ":" in env_id:
        raise UsageError(
            f"{env_id!r} names a module to import, which vlmgym does not do: import it in your program, or let its "
            "package name its environments as in docs/gymnasium.md"
        )
    if env_id not in gymnasium.registry and (family := find_words(env_id)[0]) is not None:
        import_module_of(family, env_id)
    if env_id in gymnasium.registry:
        return
    versions = [known for known in gymnasium.registry if known.startswith(f"{env_id}-v")]
    if versions:
        raise UsageError(f"{env_id!r} has no version: choose {' or '.join(versions)}")
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        raise UsageError(f"Gymnasium has no environment {env_id!r}: {first_line(error)}") from None


def make_env(env_id: str, options: tuple[str, ...], sticky: float) -> Env:
    """Make an environment.

    Args:
        env_id: Id of a registered environment.
        options: Arguments of `gymnasium.make`, each as NAME=VALUE.
        sticky: Probability that the last action is repeated instead of the chosen one.

    Raises:
        UsageError: The environment cannot be made, or has no `rgb_array` rendering.
    """
    check_id(env_id)
    arguments = parse_config_fields(options)
    if taken := {"id", "render_mode", "disable_env_checker"} & arguments.keys():
        raise UsageError(f"options cannot set {min(taken)}")
    try:
        env: Env = gymnasium.make(env_id, render_mode=MODE, disable_env_checker=True, **arguments)
    except VlmgymError:
        raise
    except Exception as error:  # the environment's own code may raise anything
        raise UsageError(f"{env_id} cannot be made: {type(error).__name__}: {first_line(error)}") from None
    if MODE not in env.metadata.get("render_modes", ()):
        raise UsageError(f"{env_id} has no {MODE} rendering")
    return StickyAction(env, sticky) if sticky else env


def meanings_of(env: Env) -> list[str] | None:
    """Return the environment's own names for its actions, which Atari games have; None if it has none."""
    found = getattr(env.unwrapped, "get_action_meanings", None)
    return None if found is None else list(map(str, found()))
