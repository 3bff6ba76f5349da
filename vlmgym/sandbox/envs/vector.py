"""Vector environments: `make_vec` and `GameVectorEnv`, whose workers draw into shared memory."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vlmgym.checks import as_int, check_timeout, to_int
from vlmgym.errors import EpisodeEnded, UsageError, short_repr
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.drawing.encode import side_by_side
from vlmgym.sandbox.envs.single import GameEnv, Response, observation_space
from vlmgym.sandbox.envs.worker import (
    OUTCOME_NAMES,
    STEP_DTYPE,
    EnvSettings,
    FinalInfos,
    Ids,
    LocalWorker,
    PrivateArray,
    RemoteWorker,
    SharedArray,
    StepBuffers,
    WorkerGroup,
    listed_actions,
)
from vlmgym.sandbox.registry import make_games
from vlmgym.workers.pool import check_num_workers, num_workers_for

Infos = dict[str, Any]

SPARES = 3
"""Maximum number of arrays whose memory is kept for reuse."""
FORBIDDEN_CALLS = frozenset({"reset", "step", "play", "close", "set_wrapper_attr"})
"""Methods of `FrameEnv` that `call` rejects, because they would bypass the vector environment."""
_OUTCOMES = np.array([None, *OUTCOME_NAMES[1:]], object)
"""Outcomes by their number in `STEP_DTYPE`, as objects, as Gymnasium stores strings in infos; None for a reset."""

MIN_ENVS_FOR_WORKERS = 64
"""Fewer environments step faster in one process than in workers: `python -m benchmarks.vector_workers`."""


def make_vec(
    game: str | Game[Any, Any],
    num_envs: int = 1,
    num_workers: int | None = None,
    *,
    perception: int = 3,
    reasoning: int = 3,
    reward: RewardConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    render: bool = True,
    copy: bool = True,
    action_masks: bool = False,
    timeout: float | None = 60.0,
    **overrides: Any,
) -> GameVectorEnv:
    """Create a vector environment of a game.

    Args:
        game: Id or name of the game, or a `Game`, which keeps its own config.
        num_envs: Number of environments.
        num_workers: Number of worker processes, among which the environments are divided; 0 to run in this process.
            Default: one per core from `MIN_ENVS_FOR_WORKERS` environments on, else 0.
        perception: Perceptual difficulty, 1 to 5.
        reasoning: Reasoning difficulty, 1 to 5.
        reward: Reward weights and shaping. Default: the game's own reward.
        autoreset_mode: Autoreset mode of Gymnasium: `NextStep`, `SameStep` or `Disabled`.
        max_episode_steps: Truncate episodes after this many turns. Default: no limit.
        render: Draw every step. Otherwise observations are empty, and `image(i)` draws on demand.
        copy: Return independent observations. Their memory is reused once they are no longer referenced. Otherwise
            observations are read-only views, which the next step overwrites.
        action_masks: Include `action_mask`, int8 of shape (num_envs, actions): 1 for legal actions. Actions of several
            numbers are numbered as `numpy.ravel_multi_index` does.
        timeout: Seconds without a response after which a worker counts as hanging; None to wait forever.
        overrides: Config fields that override the difficulty levels, e.g. `size=320`.

    Raises:
        UsageError: The game, a level or a config field is unknown, or a value is invalid.
    """
    num_envs, num_workers = to_int("num_envs", num_envs, 1), as_int(num_workers)
    check_num_workers("num_workers", num_workers)
    check_timeout(timeout, optional=True)
    reward = RewardConfig() if reward is None else RewardConfig.model_validate(reward)
    max_episode_steps = to_int("max_episode_steps", max_episode_steps, 1, optional=True)
    try:
        mode = AutoresetMode(autoreset_mode)
    except ValueError:
        modes = ", ".join(mode.value for mode in AutoresetMode)
        raise UsageError(f"autoreset_mode must be one of {modes}, got {short_repr(autoreset_mode)}") from None
    settings = EnvSettings(reward, mode, max_episode_steps, action_masks, render)
    (game_object,) = make_games([game], perception, reasoning, **overrides)
    return GameVectorEnv(game_object, num_envs, settings, num_workers, copy, timeout)


class GameVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments that run in lock-step (`step`) or asynchronously (`send` and `recv`).

    Each environment plays exactly the same episodes as a `GameEnv` with the same seed, for any number of workers.

    Observations: uint8 of shape (num_envs, height, width, 3), or a tuple of such arrays if the game has several images.
    Actions: an array of native actions, or a sequence with a native action or a `Response` for each environment.
    Infos: arrays `score`, `turn`, `seed` and `outcome` (None after a reset) with masks `_score` etc.; `action_mask` if
    it was asked for. In mode `SameStep`, also `final_obs` and `final_info` of episodes that ended.
    Errors: `UsageError` and `EpisodeEnded` change nothing. Any other error closes the vector environment, because the
    states of its environments are unknown; save the result of `get_states` regularly if you need to resume.
    """

    def __init__(
        self,
        game: Game[Any, Any],
        num_envs: int,
        settings: EnvSettings,
        num_workers: int | None,
        copy: bool,
        timeout: float | None,
    ) -> None:
        """Create the environments; see `make_vec`."""
        self.game, self.num_envs, self.settings = game, num_envs, settings
        self.copy, self.timeout = copy, timeout
        fps = GameEnv.metadata["render_fps"]
        self.metadata = {"autoreset_mode": settings.autoreset, "render_modes": ["rgb_array"], "render_fps": fps}
        self.render_mode = "rgb_array"
        self._shapes = [shape if settings.render else (0, 0, 3) for shape in game.image_shapes]
        self.single_observation_space = observation_space(self._shapes)
        self.observation_space = observation_space(self._shapes, self.num_envs)
        self.single_action_space = game.answer.space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        if num_workers is None and self.num_envs < MIN_ENVS_FOR_WORKERS:
            num_workers = 0
        self.num_workers = num_workers_for(self.num_envs, num_workers)
        array = SharedArray if self.num_workers else PrivateArray
        frames, final_frames = ([array((num_envs, *shape), np.uint8) for shape in self._shapes] for _ in range(2))
        masks = array((num_envs, len(listed_actions(game))), np.int8) if settings.action_masks else None
        buffers = StepBuffers(array((num_envs,), STEP_DTYPE), frames, final_frames, masks)
        self._masks = None if masks is None else masks.array()
        self._numbers = buffers.numbers.array()
        self._frames = [frames.array() for frames in buffers.frames]
        self._final_frames = [frames.array() for frames in buffers.final_frames]
        self._pools = [BufferPool() for _ in self._frames]
        bounds = np.linspace(0, self.num_envs, max(1, self.num_workers) + 1).astype(int).tolist()
        parts = [slice(start, stop) for start, stop in pairwise(bounds)]
        worker = RemoteWorker if self.num_workers else LocalWorker
        self._group = WorkerGroup([worker(game, settings, part, buffers) for part in parts])
        self._finalizer = weakref.finalize(self, self._group.close)
        self._started = np.zeros(self.num_envs, bool)

    # Lock-step ---------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or only in those set in `options["reset_mask"]`.

        Args:
            seed: An integer (environment i gets seed + i), a sequence with one integer or None per environment, or
                None. An environment without a seed draws one, as in `GameEnv.reset`.
            options: `{"reset_mask": mask}` with a bool array of shape (num_envs,); other environments do not change.

        Raises:
            UsageError: Results of `send` have not been received, or an argument is invalid.
            GameError: A game failed; the vector environment is closed.
            WorkerError: See `step`.
        """
        ids = self._idle(read_reset_mask(options, self._group.all))
        seeds = read_seeds(seed, self.num_envs)
        return self._start(ids, [seeds[i] for i in ids], [None] * len(ids))

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take a turn in every environment.

        Raises:
            UsageError: The number of actions is wrong, an action is not in its action space, `reset` was not called, or
                results of `send` have not been received. No environment was stepped.
            EpisodeEnded: An episode is over and autoreset is disabled. No environment was stepped.
            GameError: A game failed; the vector environment is closed.
            WorkerError: A worker hangs or died; the vector environment is closed.
        """
        self._nothing_in_flight()
        self.send(actions)
        return self._read_results(self._group.all, self._group.collect(self.timeout))

    # Asynchronous ----------------------------------------------------------------------------------------------------

    def send(self, actions: Any, env_ids: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> None:
        """Start a turn in some environments without waiting for it.

        Args:
            actions: One action per environment, in the order of `env_ids`.
            env_ids: Indices of environments. Default: all.

        Raises:
            UsageError: The number of actions is wrong, an action is not in its action space, an index is invalid or
                repeated, or an environment has not been reset or has a result that was not received.
            EpisodeEnded: An episode is over and autoreset is disabled.
        """
        ids = self._idle(read_ids(env_ids, self._group.all))
        self._check_started(ids)
        over = self._numbers["over"][ids]
        if self.settings.autoreset is AutoresetMode.DISABLED and over.any():
            first = int(ids[over][0])
            raise EpisodeEnded(
                f"the episode of environment {first} is over: reset it with options={{'reset_mask': mask}}"
            )
        actions = read_actions(actions, ids, over, self.game)
        self._group.submit("step", ids, actions, timeout=self.timeout)

    def recv(self) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any], NDArray[np.intp]]:
        """Wait until a worker has finished its part of a `send`, and return the results of that part.

        Returns:
            Observations, rewards, terminations, truncations, infos, and the indices `env_ids` of the environments that
            the results belong to; all arrays have one entry per index, in this order. Without `copy`, observations are
            a read-only view if the indices are contiguous.

        Raises:
            UsageError: No results are pending.
            GameError: See `step`.
            WorkerError: See `step`.
        """
        self._check_open()
        if not self._group.in_flight.any():
            raise UsageError("call send before recv")
        ids, reply = self._group.take(self.timeout)
        return *self._read_results(ids, [(ids, reply)]), ids.copy()

    # States ----------------------------------------------------------------------------------------------------------

    def get_states(self) -> list[Snapshot]:
        """Return a snapshot of each environment's episode."""
        self._nothing_in_flight()
        self._check_started(self._group.all)
        return list(self.call("snapshot"))

    def set_states(
        self,
        states: Sequence[Snapshot],
        env_ids: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        seed: int | Sequence[int | None] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Restore snapshots; return observations and infos like `reset`.

        Args:
            states: One snapshot per environment, in the order of `env_ids`.
            env_ids: Indices of environments. Default: all.
            seed: Seeds for new randomness, as for `reset`; a sequence has one per environment, not one per state.
                Default: each episode continues with the randomness of its snapshot.

        Raises:
            UsageError: The number of states is wrong, or a state belongs to another game or config.
        """
        ids = self._idle(read_ids(env_ids, self._group.all))
        seeds = read_seeds(seed, self.num_envs)
        if len(states) != len(ids):
            raise UsageError(f"got {len(states)} states for {len(ids)} environments")
        for state in states:
            Episode.restore(self.game, state)  # a worker would raise after others have set theirs
        return self._start(ids, [seeds[i] for i in ids], list(states))

    def image(self, env_id: int) -> ImageArray:
        """Return the image of one environment, even if steps are not drawn."""
        ids = self._idle(read_ids([env_id], self._group.all))
        self._check_started(ids)
        if self.settings.render:
            return side_by_side([frames[env_id] for frames in self._frames])
        image: ImageArray = self._call(ids, "render", (), {})[0]
        return image

    # Gymnasium's interface -------------------------------------------------------------------------------------------

    def render(self) -> tuple[ImageArray, ...]:
        """Return the image of each environment."""
        return tuple(self.image(i) for i in range(self.num_envs)) if self.settings.render else self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute that is not a method; see `GameEnv` for both.

        Raises:
            UsageError: The attribute is unknown or would bypass the vector environment, or an argument or result cannot
                be pickled.
        """
        if name in FORBIDDEN_CALLS or name.startswith("_"):
            raise UsageError(f"cannot call {name!r}: use the methods of the vector environment")
        return self._call(self._group.all, name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the value of an attribute of each environment; see `call`."""
        return self.call(name)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as in AsyncVectorEnv
        """Seed of each environment's generator, which draws the seeds of its episodes."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read only
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # as in AsyncVectorEnv
        """Each environment's generator, which draws its episode seeds; a copy if it is in a worker process."""
        return self.get_attr("np_random")

    @property
    def closed(self) -> bool:  # type: ignore[override]  # errors close it, too
        """True once the vector environment is closed."""
        return self._group.closed

    def close(self, **kwargs: Any) -> None:
        """Stop all workers. Idempotent."""
        self._finalizer()

    def __reduce__(self) -> NoReturn:
        """Prevent pickling and copying: a copy would not share the memory that its environments draw into."""
        raise UsageError("a vector environment cannot be pickled or copied: use get_states and set_states")

    # ----------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("the vector environment is closed")

    def _idle(self, ids: Ids) -> Ids:
        """Return `ids`; raise `UsageError` if one of these environments has a result that was not received."""
        self._check_open()
        busy = self._group.in_flight[ids]
        if busy.any():
            raise UsageError(f"the result of environment {int(ids[busy][0])} was not received: call recv first")
        return ids

    def _check_started(self, ids: Ids) -> None:
        if not self._started[ids].all():
            raise UsageError("reset the environments first")

    def _nothing_in_flight(self) -> None:
        self._check_open()
        if self._group.in_flight.any():
            raise UsageError("receive all results of send with recv first")

    def _start(self, ids: Ids, seeds: list[int | None], snapshots: list[Snapshot | None]) -> tuple[Any, dict[str, Any]]:
        self._nothing_in_flight()
        self._group.submit("reset", ids, seeds, snapshots, timeout=self.timeout)
        replies = self._group.collect(self.timeout)
        self._started[ids] = True
        observations, *_, infos = self._read_results(self._group.all, replies)
        return observations, infos

    def _call(self, ids: Ids, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        self._nothing_in_flight()
        self._group.submit("call", ids, args=(name, args, kwargs), timeout=self.timeout)
        return tuple(value for _, values in self._group.collect(self.timeout) for value in values)

    def _read_results(
        self, ids: Ids, replies: list[tuple[Ids, FinalInfos | None]]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        numbers = self._numbers[as_slice(ids)]
        infos = self._infos(ids, numbers, replies)
        columns = (numbers[name].copy() for name in ("reward", "terminated", "truncated"))
        return self._observations(ids), *columns, infos

    def _observations(self, ids: Ids) -> Any:
        index = as_slice(ids)
        images = [frames[index] for frames in self._frames]
        if isinstance(index, slice) and self.copy:
            images = [pool.copy(frames) for pool, frames in zip(self._pools, images)]
        elif isinstance(index, slice):
            for frames in images:
                frames.flags.writeable = False  # writing would corrupt later images
        return images[0] if len(images) == 1 else tuple(images)

    def _infos(self, ids: Ids, numbers: NDArray[Any], replies: list[tuple[Ids, FinalInfos | None]]) -> Infos:
        """Return the infos of some environments: an array per field, and a mask of the environments that have it.

        Args:
            ids: Indices of the environments.
            numbers: Numeric results of these environments, in the same order.
            replies: Pairs of environment indices and their worker's reply.
        """
        has_reply = np.ones(len(ids), bool)
        if sum(len(worker_ids) for worker_ids, _ in replies) < len(ids):  # a reset of some environments
            has_reply = np.isin(ids, np.concatenate([worker_ids for worker_ids, _ in replies]))
        infos = self._final_infos(ids, replies)
        for name in ("score", "turn", "seed"):
            infos[name], infos[f"_{name}"] = numbers[name].copy(), has_reply.copy()
        if self._masks is not None:
            infos["action_mask"], infos["_action_mask"] = self._masks[as_slice(ids)].copy(), has_reply.copy()
        outcome = numbers["outcome"] * has_reply
        infos["outcome"], infos["_outcome"] = _OUTCOMES[outcome], outcome > 0
        return infos

    def _final_infos(self, ids: Ids, replies: list[tuple[Ids, FinalInfos | None]]) -> Infos:
        """Return `final_obs` and `final_info` of the episodes that ended in mode `SameStep`, if there are any."""
        index = {int(i): at for at, i in enumerate(ids)}
        infos: Infos = {}
        for _, reply in replies:
            for i, info in (reply or {}).items():
                images = [frames[i].copy() for frames in self._final_frames]
                final_obs = images[0] if len(images) == 1 else tuple(images)
                infos = self._add_info(infos, {"final_obs": final_obs, "final_info": info}, index[i])
        return _truncate(infos, len(ids))


def as_slice(ids: Ids) -> slice | Ids:
    """Return ascending, consecutive indices as a slice, so that indexing returns views; return others unchanged."""
    first, last = int(ids[0]), int(ids[-1])
    consecutive = last - first + 1 == len(ids) and bool((ids[1:] > ids[:-1]).all())
    return slice(first, last + 1) if consecutive else ids


def _truncate(infos: Infos, length: int) -> Infos:
    """Truncate arrays to `length`, because Gymnasium creates them for all environments."""
    return {
        name: _truncate(value, length) if isinstance(value, dict) else value[:length] for name, value in infos.items()
    }


class BufferPool:
    """Copies arrays into the memory of earlier copies that are no longer referenced.

    A copy is never overwritten while it is referenced, even if only by a view or by another library. Callers get views,
    so that they cannot change the flags or type of the underlying array.
    """

    def __init__(self) -> None:
        self._spares: list[NDArray[np.uint8]] = []

    def copy(self, source: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an independent copy."""
        for i in range(len(self._spares)):
            if self._spares[i].shape == source.shape and _references(self._spares, i) == _UNUSED:
                np.copyto(self._spares[i], source)
                return self._spares[i][...]
        self._spares = [*self._spares[1 - SPARES :], source.copy()]
        return self._spares[-1][...]


def _references(arrays: list[NDArray[np.uint8]], i: int) -> int:
    return sys.getrefcount(arrays[i])


_UNUSED = _references([np.empty(0, np.uint8)], 0)
"""Reference count of an array that is referenced only by the list."""


# Arguments ------------------------------------------------------------------------------------------------------------


def read_seeds(seed: object, count: int) -> list[int | None]:
    """Return one seed or None per environment."""
    if seed is None:
        return [None] * count
    first = as_int(seed)
    if isinstance(first, int):
        _check_seed(first)
        return [_check_seed(first + i) for i in range(count)]
    seeds = seed.tolist() if isinstance(seed, np.ndarray) else seed
    if not isinstance(seeds, Sequence) or isinstance(seeds, str | bytes):
        raise UsageError(f"seed must be an integer, one per environment, or None, got {short_repr(seed)}")
    if len(seeds) != count:
        raise UsageError(f"got {len(seeds)} seeds for {count} environments")
    return [None if value is None else _check_seed(as_int(value)) for value in seeds]


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
    count, array = len(all_ids), _array(env_ids)
    if array.dtype.kind in "iu" and array.ndim == 1 and len(array) > 0 and array.min() >= 0 and array.max() < count:
        ids = array.astype(np.intp)
        if len(np.unique(ids)) == len(ids):
            return ids
    raise UsageError(f"env_ids must be distinct integers from 0 to {count - 1}, got {short_repr(env_ids)}")


def read_actions(actions: object, ids: Ids, resets: NDArray[np.bool_], game: Game[Any, Any]) -> list[Any]:
    """Return one action per environment, in the type that the game expects.

    Args:
        actions: Argument `actions` of `step` or `send`.
        ids: Indices of the environments.
        resets: Bool array, shape (len(ids),): True where the step resets the environment. Its action is ignored and
            replaced with None.
        game: Game of all environments.
    """
    if isinstance(actions, np.ndarray) and actions.ndim:
        values: Sequence[Any] = actions.tolist()
    elif isinstance(actions, Sequence) and not isinstance(actions, str | bytes):
        values = actions
    else:
        raise UsageError(f"actions must be a sequence or array with one per environment, got {short_repr(actions)}")
    if len(values) != len(ids):
        raise UsageError(f"got {len(values)} actions for {len(ids)} environments")
    space = game.answer.space
    numbers = _numbers(actions, space) if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else None
    if numbers is not None and contains_all(space, numbers[~resets]):
        native = [*map(tuple, values)] if space.shape else [*values]
        for i in np.flatnonzero(resets).tolist():
            native[i] = None
        return native
    return [
        None if reset else action if isinstance(action, Response) else game.answer.to_action(action)
        for reset, action in zip(resets.tolist(), values, strict=True)
    ]


def _numbers(actions: Any, space: spaces.Space[Any]) -> NDArray[Any] | None:
    """Return actions as an array if they are an array or a sequence of ints or int tuples, as in `space`; else None."""
    if isinstance(actions, np.ndarray):
        return actions
    values = chain.from_iterable(actions) if (tuples := {*map(type, actions)} == {tuple}) else actions
    array = _array(actions) if tuples == bool(space.shape) and {*map(type, values)} == {int} else np.array(None)
    return array if array.ndim else None


def _array(value: object) -> NDArray[Any]:
    """Convert to an array; if that is impossible, return a zero-dimensional array."""
    try:
        return np.asarray(value)
    except ValueError:  # sequences of different lengths
        return np.array(None)


def contains_all(space: spaces.Space[Any], actions: NDArray[Any]) -> bool:
    """Return True if an array is a batch of values of a numeric space; many times faster than checking one by one."""
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    if actions.dtype.kind not in "iu" or actions.shape[1:] != space.shape:
        return False
    end = space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec)
    return bool(((actions >= space.start) & (actions < end)).all())
