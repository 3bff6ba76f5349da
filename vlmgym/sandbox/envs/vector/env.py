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
from vlmgym.sandbox.rendering.encode import side_by_side
from vlmgym.workers.limits import Backend, check_num_workers, num_workers_for

_FORBIDDEN = frozenset({"reset", "step", "play", "close", "restore", "set_attribute", "set_wrapper_attr", "keep_frame"})
"""Methods of environments that `call` rejects, because they would bypass the vector environment."""


class GameVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments that run in lock-step (`step`) or asynchronously (`send` and `recv`).

    Each environment plays exactly the episodes of a `GameEnv` with the same seed, for any number of workers.

    Observations: uint8 (num_envs, height, width, 3), or a tuple of them if games have several images.
    Actions: a batch of native actions, or a sequence with a native action or a `Response` for each environment.
    Infos: arrays `score`, `turn`, `seed` and `outcome` (None after a reset) with masks `_score` etc.; with `full_info`
    also the infos of `GameEnv`. In mode `SameStep`, `final_obs` and `final_info` of ended episodes.
    Different games must have images of the same size and number. If their actions have the same shape (cells of boards
    of several sizes), `action_space` is their batch, else a `Tuple`; there is no `single_action_space`.
    Errors: `UsageError` and `EpisodeEnded` change nothing. Any other error closes the vector environment, because the
    states of its environments are unknown; save `get_states` regularly if you need to resume.
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
        """Create the environments; see `make_vec`. `attributes` are set on each environment, see `set_attr`.

        Raises:
            UsageError: The games' images differ in size or number, or there is no Ray cluster.
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
        """Start an episode in every environment, or in some by `options["reset_mask"]`.

        Args:
            seed: An integer (environment i gets seed + i), one integer or None per environment, or None.
            options: `{"reset_mask": mask}` with a bool array; other environments are unchanged.

        Raises:
            UsageError: Results of `send` were not received, or an argument is invalid.
            GenerationError: A game could not start an episode; the vector environment is closed.
            WorkerError: See `step`.
        """
        ids = self._idle(read_reset_mask(options, self._group.all))
        seeds = read_seeds(seed, self.num_envs)
        return self._start(ids, [seeds[i] for i in ids], [None] * len(ids))

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take a turn in every environment.

        Raises:
            UsageError: The number of actions is wrong, one is not in its action space, there was no reset, or results
                of `send` were not received; nothing was stepped.
            EpisodeEnded: An episode is over and autoreset is disabled; nothing was stepped.
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
            UsageError: An action is not in its action space, an index is invalid or repeated, or an environment was not
                reset or its last result was not received.
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
        """Receive the first results that are ready.

        Returns observations, rewards, terminations, truncations, infos and `env_ids`, the environments of one worker
        and one `send`. All arrays have the order and length of `env_ids`. Without `copy`, observations are a view if
        the indices are contiguous.

        Raises:
            UsageError: Nothing was sent.
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
        """Restore snapshots; returns observations and infos like `reset`.

        Args:
            states: One snapshot per environment.
            env_ids: Indices of environments. Default: all.
            seed: Seeds for different randomness, see `reset`. Default: the randomness of the snapshots.

        Raises:
            UsageError: The number of states is wrong, or a state does not belong to its game.
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
        """Create a vector environment with n copies of each environment; environment i has copies n*i to n*i + n - 1.

        Args:
            n: Number of copies.
            seed: Copy k gets the randomness of seed + k. Default: the randomness of the original.
            num_workers: See `make_vec`. Default: same as here.
            render: Draw the copies. Default: same as here.
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
        """Call a method of each environment, or get an attribute; see `GameEnv`.

        Raises:
            UsageError: The attribute is unknown, would bypass the vector environment, or cannot be pickled.
        """
        check_instance("the name of an attribute", name, str)
        if name in _FORBIDDEN or name.startswith("_"):
            raise UsageError(f"cannot call {name!r}: use the methods of the vector environment")
        return self._call(self._group.all, name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment.

        It is either `reward`, a `RewardConfig` that applies from the next turn, or a new attribute for the user's own
        purposes. It survives resets and restarts of workers, and is copied by `branch`.

        Args:
            name: Name of the attribute.
            values: A list or tuple with one value per environment, or one value for all.

        Raises:
            UsageError: The number of values is wrong, or the attribute cannot be set. Nothing was set.
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
        """Each environment's generator, which draws the seeds of its episodes; copies if there are workers."""
        return self.get_attr("np_random")

    @property
    def single_action_space(self) -> spaces.Space[Any]:  # type: ignore[override]  # missing if games differ
        """The action space of each environment.

        Raises:
            AttributeError: They differ.
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
        """Check that environments have no result in flight, and return them."""
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
    """Return the type of workers and their number, 0 for one in this process."""
    if backend == "ray":
        from vlmgym.sandbox.envs.vector.ray_worker import RayEnvWorker
        from vlmgym.workers.ray import cluster_workers_for, join_cluster

        return RayEnvWorker, cluster_workers_for(join_cluster(), num_envs, num_workers)
    workers = num_workers_for(num_envs, num_workers)
    return (RestartingWorker if workers else LocalWorker), workers
