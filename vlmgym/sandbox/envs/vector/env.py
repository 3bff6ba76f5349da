"""A Gymnasium vector environment whose workers draw into shared memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from vlmgym.checks import as_int, check_instance, check_int
from vlmgym.errors import EpisodeEnded, UsageError
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.drawing.encode import side_by_side
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.envs.vector.arguments import (
    check_room,
    read_actions,
    read_ids,
    read_reset_mask,
    read_seeds,
    read_snapshots,
)
from vlmgym.sandbox.envs.vector.frame_env import STEP_DTYPE, EnvSettings, check_attribute
from vlmgym.sandbox.envs.vector.results import Results, as_slice
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray, SharedArray
from vlmgym.sandbox.envs.vector.spaces import action_spaces, observation_space, plain_action_space
from vlmgym.sandbox.envs.vector.worker import StepBuffers, StepReply, WorkerSpec
from vlmgym.sandbox.envs.vector.worker_group import Ids, WorkerGroup
from vlmgym.sandbox.envs.vector.worker_handle import LocalWorker, RestartingWorker, WorkerHandle
from vlmgym.workers.limits import Backend, check_num_workers, num_workers_for

_FORBIDDEN = frozenset({"reset", "step", "play", "close", "restore", "set_attribute", "set_wrapper_attr", "keep_frame"})
"""Methods of `FrameEnv` that `call` rejects, because they would bypass the vector environment."""


class GameVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments that run in lock-step (`step`) or asynchronously (`send` and `recv`).

    Each environment plays exactly the same episodes as a `GameEnv` with the same seed, for any number of workers.

    Observations: uint8 of shape (num_envs, height, width, 3), or a tuple of such arrays if games have several images.
    Actions: an array of native actions, or a sequence with a native action or a `Response` for each environment.
    Infos: arrays `score`, `turn`, `seed` and `outcome` (None after a reset) with masks `_score` etc.; with `full_info`
    also the infos of `GameEnv`. In mode `SameStep`, also `final_obs` and `final_info` of episodes that ended.
    Different games: their images must have the same size and number, and `single_action_space` is missing if their
    action spaces differ. `action_space` is then a batched space if all actions have the same shape, such as cells on
    boards of different sizes, and a `Tuple` otherwise.
    Errors: `UsageError` and `EpisodeEnded` change nothing. Any other error closes the vector environment, because the
    states of its environments are unknown; save the result of `get_states` regularly if you need to resume.
    """

    def __init__(
        self,
        games: Sequence[Game[Any, Any]],
        settings: EnvSettings,
        num_workers: int | None,
        render: bool = True,
        copy: bool = True,
        timeout: float | None = 60.0,
        attributes: Sequence[dict[str, Any]] | None = None,
        backend: Backend = "process",
    ) -> None:
        """Create one environment per game; see `make_vec`. `attributes` has the `set_attr` values of each environment.

        Raises:
            UsageError: The images of the games differ in size or number, or there is no Ray cluster.
        """
        self.games, self.settings, self.backend = list(games), settings, backend
        self.draws, self.copy, self.timeout = render, copy, timeout
        self.num_envs = len(self.games)
        fps = GameEnv.metadata["render_fps"]
        self.metadata = {"autoreset_mode": settings.autoreset, "render_modes": ["rgb_array"], "render_fps": fps}
        self.render_mode = "rgb_array"
        if any(game.image_shapes != self.games[0].image_shapes for game in self.games):
            raise UsageError("the games of a vector environment must have images of the same size and number")
        self._shapes = [shape if render else (0, 0, 3) for shape in self.games[0].image_shapes]
        self.single_observation_space = observation_space(self._shapes)
        self.observation_space = observation_space(self._shapes, self.num_envs)
        self._single_action_space, self.action_space = action_spaces(self.games)
        self._plain_action_space = plain_action_space(self.games, self._single_action_space)
        worker, self.num_workers = _workers(backend, num_workers, self.num_envs)
        buffers = self._allocate()
        self._results = Results(buffers, self._shapes, copy)
        self._attributes = [dict(given) for given in attributes or [{}] * self.num_envs]
        bounds = np.linspace(0, self.num_envs, max(1, self.num_workers) + 1).astype(int).tolist()
        parts = [slice(start, stop) for start, stop in pairwise(bounds)]
        specs = [WorkerSpec(self.games[part], settings, self._attributes[part], part, buffers) for part in parts]
        self._group = WorkerGroup([worker(spec) for spec in specs])
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
            GenerationError: A game could not start an episode; the vector environment is closed.
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
            GenerationError: A game could not start the next episode; the vector environment is closed.
            WorkerError: A worker hangs or died repeatedly, or a game has a bug; the vector environment is closed.
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
        if not self._started[ids].all():
            raise UsageError("reset the environments before the first step")
        over = self._results.numbers["over"][ids]
        if self.settings.autoreset is AutoresetMode.DISABLED and over.any():
            first = int(ids[over][0])
            raise EpisodeEnded(
                f"the episode of environment {first} is over: reset it with options={{'reset_mask': mask}}"
            )
        given = read_actions(actions, ids, over, self.games, self._plain_action_space)
        self._group.submit("step", ids, given, timeout=self.timeout)

    def recv(self) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any], NDArray[np.intp]]:
        """Wait until a worker has finished its part of a `send`, and return the results of that part.

        Returns:
            Observations, rewards, terminations, truncations, infos, and the indices `env_ids` of the environments that
            the results belong to; all arrays have one entry per index, in this order. Without `copy`, observations are
            a read-only view if the indices are contiguous.

        Raises:
            UsageError: No results are pending.
            GenerationError: See `step`.
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
        states = read_snapshots(states, len(ids))
        seeds = read_seeds(seed, self.num_envs)
        for i, state in zip(ids, states, strict=True):
            Episode.restore(self.games[i], state)  # a worker would raise after others have set theirs
        return self._start(ids, [seeds[i] for i in ids], list(states))

    def branch(
        self, n: int, *, seed: int | None = None, num_workers: int | None = None, render: bool | None = None
    ) -> GameVectorEnv:
        """Create a new vector environment with n copies of each environment.

        The copies of environment i have the indices n*i to n*i + n - 1.

        Args:
            n: Number of copies of each environment.
            seed: The copy with index k gets new randomness from seed + k. Default: the randomness of the original.
            num_workers: See `make_vec`. Default: the same number as here.
            render: Draw every step of the copies. Default: the same as here.
        """
        n, num_workers = as_int(n), as_int(num_workers)
        check_int("n", n, 1)
        count = n * self.num_envs
        check_num_workers("num_workers", num_workers, self.backend)
        workers = self.num_workers if num_workers is None else num_workers
        draws = self.draws if render is None else render
        check_room(count, self.games[0], self.settings, draws, self.copy)
        read_seeds(seed, count)
        states = [state for state in self.get_states() for _ in range(n)]
        games = [game for game in self.games for _ in range(n)]
        given = [attributes for attributes in self._attributes for _ in range(n)]
        backend = self.backend if workers else "process"
        copies = GameVectorEnv(games, self.settings, workers, draws, self.copy, self.timeout, given, backend)
        copies.set_states(states, seed=seed)
        return copies

    def image(self, env_id: int) -> ImageArray:
        """Return the image of one environment, even if steps are not drawn."""
        ids = self._idle(read_ids([env_id], self._group.all))
        self._check_started(ids)
        if self.draws:
            return side_by_side([frames[env_id] for frames in self._results.frames])
        image: ImageArray = self._call(ids, "render", (), {})[0]
        return image

    # Gymnasium's interface -------------------------------------------------------------------------------------------

    def render(self) -> tuple[ImageArray, ...]:
        """Return the image of each environment."""
        return tuple(self.image(i) for i in range(self.num_envs)) if self.draws else self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute that is not a method; see `GameEnv` for both.

        Raises:
            UsageError: The attribute is unknown or would bypass the vector environment, or an argument or result is
                invalid or cannot be pickled.
        """
        check_instance("the name of an attribute", name, str)
        if name in _FORBIDDEN or name.startswith("_"):
            raise UsageError(f"cannot call {name!r}: use the methods of the vector environment")
        return self._call(self._group.all, name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the value of an attribute of each environment; see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment.

        The attribute is `reward`, a `RewardConfig` that applies from the next turn, or a new attribute for your own
        use. Its value survives resets and worker restarts, and `branch` copies it.

        Args:
            name: Name of the attribute.
            values: A list or tuple with one value per environment, or one value for all.

        Raises:
            UsageError: The number of values is wrong, or the attribute cannot be set. No environment was changed.
        """
        self._nothing_in_flight()
        given = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(given) != self.num_envs:
            raise UsageError(f"got {len(given)} values for {self.num_envs} environments")
        check_instance("the name of an attribute", name, str)
        for value in given:
            check_attribute(name, value)
        self._group.call("set_attributes", self._group.all, given, args=(name,), timeout=self.timeout)
        for attributes, value in zip(self._attributes, given, strict=True):
            attributes[name] = value

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as in AsyncVectorEnv
        """Seed of each environment's generator, which draws the seeds of its episodes."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read only
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # as in AsyncVectorEnv
        """Each environment's generator, which draws its episode seeds; a copy if it is in a worker process."""
        return self.get_attr("np_random")

    @property
    def single_action_space(self) -> spaces.Space[Any]:  # type: ignore[override]  # missing if games differ
        """The action space that all environments share.

        Raises:
            AttributeError: The action spaces of the games differ.
        """
        if self._single_action_space is None:
            raise AttributeError("there is no single_action_space, because the games have different action spaces")
        return self._single_action_space

    @property
    def closed(self) -> bool:  # type: ignore[override]  # errors close it, too
        """True once the vector environment is closed."""
        return self._group.closed

    def close(self, **kwargs: Any) -> None:
        """Stop all workers. Idempotent."""
        self._finalizer()

    def __reduce__(self) -> NoReturn:
        """Prevent pickling and copying.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a vector environment cannot be pickled or copied: use get_states and set_states, or branch")

    # ----------------------------------------------------------------------------------------------------------------

    def _allocate(self) -> StepBuffers:
        array = SharedArray if self.num_workers and self.backend == "process" else PrivateArray

        def frames() -> tuple[PrivateArray, ...]:
            return tuple(array((self.num_envs, *shape), np.uint8) for shape in self._shapes)

        same_step = self.settings.autoreset is AutoresetMode.SAME_STEP
        return StepBuffers(
            array((self.num_envs,), STEP_DTYPE),
            frames() if self.draws else None,
            frames() if self.draws and same_step else None,
        )

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
        self._check_open()
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
        return tuple(self._group.call("call", ids, args=(name, args, kwargs), timeout=self.timeout))

    def _read_results(
        self, ids: Ids, replies: list[tuple[Ids, StepReply]]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        numbers = self._results.numbers[as_slice(ids)]
        starts = [self._group.start_of(own[0]) for own, _ in replies]
        infos = self._results.infos(ids, numbers, replies, starts, self._add_info)
        columns = (numbers[name].copy() for name in ("reward", "terminated", "truncated"))
        return self._results.observations(ids), *columns, infos


def _workers(
    backend: Backend, num_workers: int | None, num_envs: int
) -> tuple[Callable[[WorkerSpec], WorkerHandle], int]:
    """Return the class of the workers and their number; 0 means one worker in this process."""
    if backend == "ray":
        from vlmgym.sandbox.envs.vector.ray_worker import RayEnvWorker
        from vlmgym.workers.ray import cluster_workers_for, join_cluster

        return RayEnvWorker, cluster_workers_for(join_cluster(), num_envs, num_workers)
    workers = num_workers_for(num_envs, num_workers)
    return (RestartingWorker if workers else LocalWorker), workers
