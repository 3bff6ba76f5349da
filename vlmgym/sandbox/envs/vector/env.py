"""Thousands of episodes at once: a Gymnasium vector environment whose processes draw into shared memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_differing_spaces, batch_space
from numpy.typing import NDArray

from vlmgym.checks import as_int, check_instance, check_int
from vlmgym.errors import EpisodeEnded, UsageError
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.core.spaces import ImageSpace
from vlmgym.sandbox.envs.single import GameEnv, Response
from vlmgym.sandbox.envs.vector.arguments import (
    check_room,
    check_timeout,
    read_actions,
    read_ids,
    read_reset_mask,
    read_seeds,
    read_settings,
    read_snapshots,
)
from vlmgym.sandbox.envs.vector.buffer_pool import BufferPool
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray, SharedArray
from vlmgym.sandbox.envs.vector.worker import OUTCOMES, ROW, Reply, Settings, check_attribute
from vlmgym.sandbox.envs.vector.worker_group import Ids, WorkerGroup
from vlmgym.sandbox.envs.vector.worker_process import LocalWorker, Memory, Plan, ProcessWorker, WorkerHandle
from vlmgym.sandbox.registry import make_games
from vlmgym.sandbox.rendering.images import side_by_side
from vlmgym.workers.process import Backend, check_num_workers, num_workers_for

GameSpec = str | Game[Any, Any]

_OUTCOMES = np.array([None, *OUTCOMES[1:]], object)
"""As Gymnasium's infos have words: None where there is none."""
_CHANGING = frozenset({"reset", "step", "play", "close", "restore", "set_attribute", "set_wrapper_attr", "keep_frame"})


def make_vec(
    game: GameSpec | Sequence[GameSpec],
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
    full_info: bool = False,
    timeout: float | None = 60.0,
    backend: Backend = "process",
    **overrides: Any,
) -> GameVectorEnv:
    """A vector environment over one game or several.

    Args:
        game: Id, name or game; or several, which the environments have in turn.
        num_envs: How many environments.
        num_workers: Processes, each with its own part of the environments; 0: none, everything in this process; None:
            one per core (with `ray` one per processor of the cluster). At most 8 per core, and one per environment.
        perception: Level 1 to 5 for the eye, of games that are given by name.
        reasoning: Level 1 to 5 for the mind, of games that are given by name.
        reward: Weights and shaping; None: the games' own rewards.
        autoreset_mode: As in Gymnasium: `NextStep`, `SameStep` or `Disabled`.
        max_episode_steps: Truncate episodes after so many turns; None: never.
        render: Draw every step; if not, observations are empty and `image(i)` draws one.
        copy: Return observations that stay as they are (memory of up to three of them is kept for later ones); if not,
            read-only views of memory that the next step changes.
        full_info: Include descriptions, legal actions and the other infos of `GameEnv`.
        timeout: Seconds without an answer after which a process counts as hung; None: never.
        backend: `process`: the processes are of this machine; `ray`: of a Ray cluster, see `vlmgym.workers.ray`.
        overrides: Single settings that override the levels, of games that are given by name.

    Raises:
        UsageError: There is no such game, level or config field, a value is not accepted, the environments do not
            fit into memory, or there is no Ray cluster.
    """
    num_envs, num_workers = as_int(num_envs), as_int(num_workers)
    check_int("num_envs", num_envs, 1)
    check_num_workers("num_workers", num_workers, backend)
    check_timeout(timeout)
    settings = read_settings(reward, autoreset_mode, max_episode_steps, full_info)
    made = make_games(game, perception, reasoning, **overrides)
    check_room(num_envs, made[0], settings, render, copy)
    games = [made[i % len(made)] for i in range(num_envs)]
    return GameVectorEnv(games, settings, num_workers, render, copy, timeout, backend=backend)


class GameVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments of vlmgym in lock-step (`step`) or as they become ready (`send` and `recv`).

    Every environment plays exactly the episodes that a `GameEnv` with the same seed plays, for any number of workers.

    Observations: uint8 (num_envs, size, size, 3), or a tuple of them if the games have several images.
    Actions: a batch of native actions; or a sequence with one native action, or one `Response`, an environment.
    Infos: arrays `score`, `turn`, `seed` and `outcome` (a word, or None after a reset) with their masks `_score`, ...;
    with `words` also what `GameEnv` tells. In mode `SameStep`, `final_obs` and `final_info` of episodes that ended.
    Different games need images of the same size and number. Their `action_space` is that of a batch if their actions
    have one shape (cells of boards of several sizes), else a `Tuple`. There is no `single_action_space` then.
    Errors: after a `UsageError` or an `EpisodeEnded` all is as before. Any other error closes the runner, because it is
    not known any more what each environment is at; `get_states` now and then is what to go on from.
    """

    def __init__(
        self,
        games: Sequence[Game[Any, Any]],
        settings: Settings,
        num_workers: int | None,
        render: bool = True,
        copy: bool = True,
        timeout: float | None = 60.0,
        attributes: Sequence[dict[str, Any]] | None = None,
        backend: Backend = "process",
    ) -> None:
        """Make the environments; see `make_vec`. `attributes` are set of each environment, see `set_attr`.

        Raises:
            UsageError: The games' images differ in size or number, or there is no Ray cluster.
        """
        self.games, self.settings, self.backend = list(games), settings, backend
        self.draws, self.copy, self.timeout = render, copy, timeout
        self.num_envs = len(self.games)
        fps = GameEnv.metadata["render_fps"]
        self.metadata = {"autoreset_mode": settings.autoreset, "render_modes": ["rgb_array"], "render_fps": fps}
        self.render_mode = "rgb_array"
        self._set_spaces()
        worker, self.num_workers = _workers(backend, num_workers, self.num_envs)
        memory = self._reserve()
        self._table = memory.table.array()
        self._frames = self._views(memory.frames)
        self._final = self._views(memory.final_frames)
        self._copiers = [BufferPool() for _ in self._frames]
        self._attributes = [dict(given) for given in attributes or [{}] * self.num_envs]
        bounds = np.linspace(0, self.num_envs, max(1, self.num_workers) + 1).astype(int).tolist()
        parts = [slice(start, stop) for start, stop in pairwise(bounds)]
        plans = [Plan(self.games[part], settings, self._attributes[part], part, memory) for part in parts]
        self._group = WorkerGroup([worker(plan) for plan in plans])
        self._finalizer = weakref.finalize(self, self._group.close)
        self._started = np.zeros(self.num_envs, bool)

    # In lock-step ---------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of `options["reset_mask"]`.

        Args:
            seed: A number (environment i gets it plus i), one or None for each environment, or None.
            options: `{"reset_mask": mask}`: a bool array; the other environments stay as they are.

        Raises:
            UsageError: Answers of `send` were not taken, or an argument is not accepted.
            GenerationError: A game could not start an episode of its configuration; the runner is closed.
            WorkerError: As in `step`.
        """
        ids = self._idle(read_reset_mask(options, self.num_envs))
        seeds = read_seeds(seed, self.num_envs)
        return self._start(ids, [seeds[i] for i in ids], [None] * len(ids))

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take a turn in every environment.

        Raises:
            UsageError: Not one action an environment, one of a wrong type, no reset before, or answers of `send` were
                not taken; nothing was stepped.
            EpisodeEnded: An episode is over and autoreset is disabled; nothing was stepped.
            GenerationError: A game could not start the next episode; the runner is closed.
            WorkerError: A process hangs, dies again and again, or a game has a fault; the runner is closed.
        """
        self._nothing_in_flight()
        self.send(actions)
        return self._results(np.arange(self.num_envs), self._group.collect(self.timeout))

    # As they become ready -------------------------------------------------------------------------------------------

    def send(self, actions: Any, env_ids: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> None:
        """Begin a turn in some environments and do not wait for it.

        Args:
            actions: One for each of them, in their order.
            env_ids: Which environments; None: all.

        Raises:
            UsageError: A number is wrong or twice, an environment was not reset or has an answer that was not taken.
            EpisodeEnded: An episode is over and autoreset is disabled.
        """
        ids = self._idle(read_ids(env_ids, self.num_envs))
        if not self._started[ids].all():
            raise UsageError("reset the environments before the first step")
        over = self._table["over"][ids]
        if self.settings.autoreset is AutoresetMode.DISABLED and over.any():
            first = int(ids[over][0])
            raise EpisodeEnded(
                f"the episode of environment {first} is over: reset it by options={{'reset_mask': mask}}"
            )
        given = read_actions(actions, len(ids))
        # The action of an environment that this step resets is not looked at.
        given = [
            None if resets else action if isinstance(action, Response) else self.games[i].to_action(action)
            for i, resets, action in zip(ids.tolist(), over.tolist(), given, strict=True)
        ]
        self._group.submit("step", ids, given, timeout=self.timeout)

    def recv(
        self,
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any], NDArray[np.intp]]:
        """Results of what is ready first: observations, rewards, terminations, truncations, infos and `env_ids`.

        Everything is in the order of `env_ids`, which are those of one process and one `send`; infos have their length.
        Without `copy` the observations are a view if the numbers follow each other without a gap.

        Raises:
            UsageError: Nothing was sent.
            GenerationError: As in `step`.
            WorkerError: As in `step`.
        """
        self._check_open()
        if not self._group.in_flight.any():
            raise UsageError("send actions before recv")
        ids, reply = self._group.take(self.timeout)
        return *self._results(ids, [(ids, reply)]), ids

    # Positions ------------------------------------------------------------------------------------------------------

    def get_states(self) -> list[Snapshot]:
        """The episode of every environment as a value."""
        self._check_started(np.arange(self.num_envs))
        return list(self.call("snapshot"))

    def set_states(
        self,
        states: Sequence[Snapshot],
        env_ids: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        seed: int | Sequence[int | None] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Go on from snapshots; returns observations and infos as `reset`.

        Args:
            states: One for each environment.
            env_ids: Which environments; None: all.
            seed: None: with the chance of the snapshots; otherwise, as in `reset`, with that of these seeds.

        Raises:
            UsageError: Not one state an environment, or a state is not one of its game.
        """
        ids = self._idle(read_ids(env_ids, self.num_envs))
        states = read_snapshots(states, len(ids))
        seeds = read_seeds(seed, self.num_envs)
        for i, state in zip(ids, states, strict=True):
            Episode.restore(self.games[i], state)  # refuse all before one is set
        return self._start(ids, [seeds[i] for i in ids], list(states))

    def branch(
        self, n: int, *, seed: int | None = None, num_workers: int | None = None, render: bool | None = None
    ) -> GameVectorEnv:
        """Another runner with n copies of every current position: those of environment i are n*i to n*i + n - 1.

        Args:
            n: Copies of each.
            seed: None: every copy has the chance its original has; otherwise copy k has that of the seed plus k.
            num_workers: As in `make_vec`; None: as this runner.
            render: Whether the copies are drawn; None: as here.
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
        """The image of one environment, also if steps are not drawn."""
        ids = self._idle(read_ids([env_id], self.num_envs))
        self._check_started(ids)
        if self.draws:
            return side_by_side([frames[env_id] for frames in self._frames])
        image: ImageArray = self._call(ids, "render", (), {})[0]
        return image

    # As Gymnasium has it --------------------------------------------------------------------------------------------

    def render(self) -> tuple[ImageArray, ...]:
        """The image of every environment."""
        return tuple(self.image(i) for i in range(self.num_envs)) if self.draws else self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or get an attribute; see `GameEnv`.

        Raises:
            UsageError: There is no such attribute, it is one that would change the environments behind the runner, or
                it cannot be handed over by a process.
        """
        check_instance("the name of an attribute", name, str)
        if name in _CHANGING or name.startswith("_"):
            raise UsageError(f"{name!r} is not for call: use the runner's own methods")
        return self._call(np.arange(self.num_envs), name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        It may be `reward`, a `RewardConfig`, which holds from the next turn on; or one that environments do not have,
        to note something of each. It outlasts episodes and processes, and branches have it, too.

        Args:
            name: Name of the attribute.
            values: A list or tuple with one for each environment, or one for all.

        Raises:
            UsageError: Not one value an environment, or the attribute is one that the environments live by; the
                message says what to do instead. Nothing was set.
        """
        self._nothing_in_flight()
        given = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(given) != self.num_envs:
            raise UsageError(f"{len(given)} values were given for {self.num_envs} environments")
        check_instance("the name of an attribute", name, str)
        for value in given:
            check_attribute(name, value)
        self._group.call("set_attributes", np.arange(self.num_envs), name, columns=[given], timeout=self.timeout)
        for attributes, value in zip(self._attributes, given, strict=True):
            attributes[name] = value

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as in AsyncVectorEnv
        """The seed of every environment's generator, which draws the seeds of its episodes."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read only
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]  # as in AsyncVectorEnv
        """Every environment's generator, which draws the seeds of its episodes; with workers, copies of them."""
        return self.get_attr("np_random")

    @property
    def single_action_space(self) -> spaces.Space[Any]:  # type: ignore[override]  # not there for different games
        """The action space of each environment.

        Raises:
            AttributeError: They differ.
        """
        if self._single_action_space is None:
            raise AttributeError(
                "the environments have different action spaces, so there is no single_action_space: environment i has "
                "that of games[i]"
            )
        return self._single_action_space

    @property
    def closed(self) -> bool:  # type: ignore[override]  # an error may close it, too
        """Whether the runner is closed."""
        return self._group.closed

    def close(self, **kwargs: Any) -> None:
        """End all processes; doing it twice is fine."""
        self._finalizer()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: the processes and their memory belong to this program.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a vector environment cannot be pickled or copied: use get_states and set_states, or branch")

    # ----------------------------------------------------------------------------------------------------------------

    def _set_spaces(self) -> None:
        first = self.games[0]
        if any(game.image_shapes != first.image_shapes for game in self.games):
            raise UsageError("all games of a runner need images of the same size and number")
        self._shapes = [shape if self.draws else (0, 0, 3) for shape in first.image_shapes]

        def space(*front: int) -> spaces.Space[Any]:
            boxes = [ImageSpace((*front, *shape)) for shape in self._shapes]
            return boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)

        self.single_observation_space, self.observation_space = space(), space(self.num_envs)
        each = [game.action_space for game in self.games]
        same = all(space == each[0] for space in each)
        self._single_action_space = each[0] if same else None
        if same:
            self.action_space = batch_space(each[0], self.num_envs)
        elif all(type(space) is type(each[0]) and space.shape == each[0].shape for space in each):
            self.action_space = batch_differing_spaces(each)
        else:
            self.action_space = spaces.Tuple(each)

    def _reserve(self) -> Memory:
        array = SharedArray if self.num_workers and self.backend == "process" else PrivateArray

        def frames() -> tuple[PrivateArray, ...]:
            return tuple(array((self.num_envs, *shape), np.uint8) for shape in self._shapes)

        same_step = self.settings.autoreset is AutoresetMode.SAME_STEP
        return Memory(
            array((self.num_envs,), ROW),
            frames() if self.draws else None,
            frames() if self.draws and same_step else None,
        )

    def _views(self, memory: tuple[PrivateArray, ...] | None) -> list[NDArray[np.uint8]]:
        if memory is None:
            return [np.zeros((self.num_envs, *shape), np.uint8) for shape in self._shapes]
        return [frames.array() for frames in memory]

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("the runner is closed")

    def _idle(self, ids: Ids) -> Ids:
        """These environments, none of which has an answer that was not taken."""
        self._check_open()
        busy = self._group.in_flight[ids]
        if busy.any():
            raise UsageError(f"environment {int(ids[busy][0])} has an answer that recv did not take")
        return ids

    def _check_started(self, ids: Ids) -> None:
        self._check_open()
        if not self._started[ids].all():
            raise UsageError("reset the environments first")

    def _nothing_in_flight(self) -> None:
        self._check_open()
        if self._group.in_flight.any():
            raise UsageError("take all answers of send by recv first")

    def _start(self, ids: Ids, seeds: list[int | None], snapshots: list[Snapshot | None]) -> tuple[Any, dict[str, Any]]:
        self._nothing_in_flight()
        self._group.submit("reset", ids, seeds, snapshots, timeout=self.timeout)
        replies = self._group.collect(self.timeout)
        self._started[ids] = True
        observations, *_, infos = self._results(np.arange(self.num_envs), replies)
        return observations, infos

    def _call(self, ids: Ids, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        self._nothing_in_flight()
        return tuple(self._group.call("call", ids, name, args, kwargs, timeout=self.timeout))

    def _results(
        self, ids: Ids, replies: list[tuple[Ids, Reply]]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        rows = self._table[ids]
        observations = self._observations(ids)
        infos = self._infos(ids, rows, replies)
        return observations, *(rows[name].copy() for name in ("reward", "terminated", "truncated")), infos

    def _observations(self, ids: Ids) -> Any:
        first, last = int(ids[0]), int(ids[-1])
        together = last - first + 1 == len(ids) and bool((np.diff(ids) == 1).all())
        taken = [frames[first : last + 1] if together else frames[ids] for frames in self._frames]
        if self.copy and together:
            taken = [copier.copy(frames) for copier, frames in zip(self._copiers, taken)]
        elif together:
            for frames in taken:
                frames.flags.writeable = False  # what a user wrote would stay in the images
        return taken[0] if len(taken) == 1 else tuple(taken)

    def _infos(self, ids: Ids, rows: NDArray[Any], replies: list[tuple[Ids, Reply]]) -> dict[str, Any]:
        """Infos as Gymnasium has them: of each fact an array of the length of `ids`, and a mask of whom it is of."""
        answered = np.zeros(self.num_envs, bool)
        for own, _ in replies:
            answered[own] = True
        answered = answered[ids]
        infos = self._words(ids, replies) if any(reply.words or reply.final_info for _, reply in replies) else {}
        for name in ("score", "turn", "seed"):
            infos[name], infos[f"_{name}"] = rows[name].copy(), answered.copy()
        outcome = np.where(answered, rows["outcome"], 0)
        infos["outcome"], infos["_outcome"] = _OUTCOMES[outcome], outcome > 0
        return infos

    def _words(self, ids: Ids, replies: list[tuple[Ids, Reply]]) -> dict[str, Any]:
        """What the replies hold beside numbers, and the last images of episodes that ended."""
        place = {int(i): at for at, i in enumerate(ids)}
        infos: dict[str, Any] = {}
        for own, reply in replies:
            start = self._group.start_of(own[0])
            for local, words in reply.words.items():
                infos = self._add_info(infos, words, place[local + start])
            for local, info in reply.final_info.items():
                images = [frames[local + start].copy() for frames in self._final]
                last = images[0] if len(images) == 1 else tuple(images)
                infos = self._add_info(infos, {"final_obs": last, "final_info": info}, place[local + start])
        return _cut(infos, len(ids))


def _workers(backend: Backend, num_workers: int | None, num_envs: int) -> tuple[Callable[[Plan], WorkerHandle], int]:
    """What makes a worker, and how many there are; 0: one in this process."""
    if backend == "ray":
        from vlmgym.sandbox.envs.vector.ray_worker import RayEnvWorker
        from vlmgym.workers.ray import cluster_workers_for, join_cluster

        return RayEnvWorker, min(cluster_workers_for(join_cluster(), num_workers, num_envs), num_envs)
    workers = num_workers_for(num_envs, num_workers)
    return (ProcessWorker if workers else LocalWorker), workers


def _cut(infos: dict[str, Any], length: int) -> dict[str, Any]:
    """Infos as Gymnasium makes them for all environments, of the first so many."""
    return {name: _cut(each, length) if isinstance(each, dict) else each[:length] for name, each in infos.items()}
