"""Validate the arguments of a vector environment; all functions raise `UsageError` for invalid ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vlmgym.checks import as_int, check_bool, check_instance, check_int
from vlmgym.errors import UsageError, short_repr
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.memory import EPISODE_BYTES, check_memory, frame_bytes
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.envs.single import Response
from vlmgym.sandbox.envs.vector.frame_env import EnvSettings
from vlmgym.sandbox.envs.vector.spaces import Space, contains_all
from vlmgym.sandbox.envs.vector.worker_group import Ids

COPIES = 2
"""Number of batches of observations that a program usually holds: the last one, and the one being created."""


def read_settings(reward: object, autoreset: object, max_turns: object, full_info: object) -> EnvSettings:
    """Validate the settings that all environments of a vector environment share."""
    if reward is None:
        reward = RewardConfig()
    check_instance("reward", reward, RewardConfig)
    try:
        mode = AutoresetMode(autoreset)
    except ValueError:
        modes = ", ".join(mode.value for mode in AutoresetMode)
        raise UsageError(f"autoreset_mode must be one of {modes}, got {short_repr(autoreset)}") from None
    max_turns = as_int(max_turns)
    check_int("max_episode_steps", max_turns, 1, optional=True)
    check_bool("full_info", full_info)
    return EnvSettings(reward, mode, max_turns, bool(full_info))  # type: ignore[arg-type]  # both were checked


def check_room(count: int, game: Game[Any, Any], settings: EnvSettings, render: object, copy: object) -> None:
    """Check that `count` environments fit into memory, before any is created."""
    check_bool("render", render)
    check_bool("copy", copy)
    buffers = 1 + (settings.autoreset is AutoresetMode.SAME_STEP) + (COPIES if copy else 0)
    each = EPISODE_BYTES + (buffers * frame_bytes(game) if render else 0)
    advice = "use fewer, smaller images, copy=False or render=False"
    check_memory(count * each, f"{count:,} environments", advice)


def read_seeds(seed: object, count: int) -> list[int | None]:
    """Return one seed or None per environment."""
    if seed is None:
        return [None] * count
    first = as_int(seed)
    if isinstance(first, int):
        _check_seed(first)
        return [_check_seed(first + i) for i in range(count)]
    given = seed.tolist() if isinstance(seed, np.ndarray) else seed
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UsageError(f"seed must be an integer, one per environment, or None, got {short_repr(seed)}")
    if len(given) != count:
        raise UsageError(f"got {len(given)} seeds for {count} environments")
    return [None if each is None else _check_seed(as_int(each)) for each in given]


def _check_seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise UsageError(f"a seed must be an integer from 0 to 2^63 - 1, or None, got {short_repr(seed)}")
    return seed


def read_reset_mask(options: object, all_ids: Ids) -> Ids:
    """Return the indices of the environments to reset: those set in `options["reset_mask"]`, by default all."""
    if options is None:
        return all_ids
    if not isinstance(options, Mapping):
        raise UsageError(f"options of reset must be a dict, got {short_repr(options)}")
    if unknown := [name for name in options if name != "reset_mask"]:
        raise UsageError(f"unknown reset option {short_repr(unknown[0])}; the only one is 'reset_mask'")
    if not options:
        return all_ids
    mask = _array(options["reset_mask"])
    if mask.dtype != np.bool_ or mask.shape != all_ids.shape or not mask.any():
        raise UsageError(f"reset_mask must be a bool array of shape ({len(all_ids)},) that is not all False")
    return np.flatnonzero(mask)


def read_ids(env_ids: object, all_ids: Ids) -> Ids:
    """Return `env_ids` as an array of distinct indices; None means all environments."""
    if env_ids is None:
        return all_ids
    count, given = len(all_ids), _array(env_ids)
    if given.dtype.kind in "iu" and given.ndim == 1 and len(given) > 0 and given.min() >= 0 and given.max() < count:
        ids = given.astype(np.intp)
        if len(np.unique(ids)) == len(ids):
            return ids
    raise UsageError(f"env_ids must be distinct integers from 0 to {count - 1}, got {short_repr(env_ids)}")


def read_actions(
    actions: object, ids: Ids, resets: NDArray[np.bool_], games: Sequence[Game[Any, Any]], space: Space | None
) -> list[Any]:
    """Return one action per environment, in the type that its game expects.

    Args:
        actions: Argument `actions` of `step` or `send`.
        ids: Indices of the environments.
        resets: Bool array, shape (len(ids),): True where the step resets the environment. Its action is ignored and
            replaced with None.
        games: Games of all environments of the vector environment.
        space: Result of `plain_action_space`.
    """
    if isinstance(actions, np.ndarray) and actions.ndim:
        given: Sequence[Any] = actions.tolist()
    elif isinstance(actions, Sequence) and not isinstance(actions, str | bytes):
        given = actions
    else:
        raise UsageError(f"actions must be a sequence or array with one per environment, got {short_repr(actions)}")
    if len(given) != len(ids):
        raise UsageError(f"got {len(given)} actions for {len(ids)} environments")
    numbers = None if space is None else _numbers(actions, space)
    if space is not None and numbers is not None and contains_all(space, numbers[~resets]):
        taken = [*map(tuple, given)] if space.shape else [*given]
        for i in np.flatnonzero(resets).tolist():
            taken[i] = None
        return taken
    return [
        None if reset else action if isinstance(action, Response) else games[i].to_action(action)
        for i, reset, action in zip(ids.tolist(), resets.tolist(), given, strict=True)
    ]


def _numbers(actions: Any, space: Space) -> NDArray[Any] | None:
    """Return actions as an array if they are an array or a sequence of ints or int tuples, as in `space`; else None."""
    if isinstance(actions, np.ndarray):
        return actions
    values = chain.from_iterable(actions) if (tuples := {*map(type, actions)} == {tuple}) else actions
    array = _array(actions) if tuples == bool(space.shape) and {*map(type, values)} == {int} else np.array(None)
    return array if array.ndim else None


def read_snapshots(states: object, count: int) -> list[Snapshot]:
    """Return one snapshot per environment."""
    if not isinstance(states, Sequence) or isinstance(states, str | bytes):
        raise UsageError(f"states must be a sequence with one Snapshot per environment, got {short_repr(states)}")
    if len(states) != count:
        raise UsageError(f"got {len(states)} states for {count} environments")
    for state in states:
        check_instance("a state", state, Snapshot)
    return list(states)


def _array(value: object) -> NDArray[Any]:
    """Convert to an array; if that is impossible, return a zero-dimensional array."""
    try:
        return np.asarray(value)
    except ValueError:  # sequences of different lengths
        return np.array(None)
