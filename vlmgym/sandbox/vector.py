"""Thousands of episodes at once: a Gymnasium vector environment whose processes draw into shared memory."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vlmgym.errors import EpisodeEnded, UsageError
from vlmgym.sandbox.drawing.pictures import side_by_side
from vlmgym.sandbox.env import Response
from vlmgym.sandbox.episode import Episode, Snapshot
from vlmgym.sandbox.game import Game, Picture
from vlmgym.sandbox.processes import available_cores
from vlmgym.sandbox.recycling import RecyclingCopier
from vlmgym.sandbox.registry import make_game
from vlmgym.sandbox.reward import RewardConfig
from vlmgym.sandbox.shard import OUTCOMES, ROW, Reply, Settings
from vlmgym.sandbox.shard_process import LocalShard, Memory, ProcessShard, ShardHandle
from vlmgym.sandbox.shared_memory import OwnArray, SharedArray
from vlmgym.sandbox.spaces import PictureSpace

GameSpec = str | Game[Any, Any]

_WORDS = np.array(OUTCOMES)
_CHANGING = frozenset({"reset", "step", "play", "close", "restore"})


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
    words: bool = False,
    timeout: float | None = 60.0,
    **knobs: Any,
) -> GameVectorEnv:
    """A vector environment over one game or several.

    Args:
        game: Id, name or game; or several, which the environments have in turn.
        num_envs: How many environments.
        num_workers: Processes, each with its own part of the environments; 0: none, everything in this process; None:
            one per core, and no more than environments.
        perception: Level 1 to 5 for the eye, of games that are given by name.
        reasoning: Level 1 to 5 for the mind, of games that are given by name.
        reward: Weights and shaping; None: the games' own rewards.
        autoreset_mode: As in Gymnasium: `NextStep`, `SameStep` or `Disabled`.
        max_episode_steps: Truncate episodes after so many turns; None: never.
        render: Draw every step; if not, observations are empty and `picture(i)` draws one.
        copy: Return observations that stay as they are (memory of up to three of them is kept for later ones); if not,
            read-only views of memory that the next step changes.
        words: Tell descriptions, legal actions and the like in the infos, as `GameEnv` does.
        timeout: Seconds without an answer after which a process counts as hung; None: never.
        knobs: Single settings that override the levels, of games that are given by name.

    Raises:
        UsageError: There is no such game, level or knob, or a value is not accepted.
    """
    if num_envs < 1:
        raise UsageError(f"num_envs is at least 1, not {num_envs}")
    if max_episode_steps is not None and max_episode_steps < 1:
        raise UsageError(f"max_episode_steps is at least 1, or None for no limit, not {max_episode_steps}")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"timeout is a number of seconds above 0, or None for never, not {timeout}")
    specs = [game] if isinstance(game, str | Game) else list(game)
    if not specs:
        raise UsageError("name at least one game")
    if num_workers is None:
        num_workers = min(available_cores(), num_envs)
    if num_workers < 0:
        raise UsageError(f"num_workers is a number of processes, 0 for none, not {num_workers}")
    made = [spec if isinstance(spec, Game) else make_game(spec, perception, reasoning, **knobs) for spec in specs]
    try:
        mode = AutoresetMode(autoreset_mode)
    except ValueError:
        modes = ", ".join(mode.value for mode in AutoresetMode)
        raise UsageError(f"autoreset_mode is one of {modes}, not {autoreset_mode!r}") from None
    settings = Settings(reward or RewardConfig(), mode, max_episode_steps, words)
    games = [made[i % len(made)] for i in range(num_envs)]
    return GameVectorEnv(games, settings, min(num_workers, num_envs), render, copy, timeout)


class GameVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments of vlmgym in lock-step (`step`) or as they become ready (`send` and `recv`).

    Every environment plays exactly the episodes that a `GameEnv` with the same seed plays, for any number of workers.

    Observations: uint8 (num_envs, size, size, 3), or a tuple of them if the games have several pictures.
    Actions: a batch of native actions; or a sequence with one native action, or one `Response`, an environment.
    Infos: arrays `score`, `turn`, `seed` and `outcome` (empty after a reset) with their masks `_score`, ...; with
    `words` also what `GameEnv` tells. In mode `SameStep`, `final_obs` and `final_info` of episodes that ended.
    Different games need pictures of the same size and number; their action space is a `Tuple`.
    """

    def __init__(
        self,
        games: Sequence[Game[Any, Any]],
        settings: Settings,
        num_workers: int,
        render: bool = True,
        copy: bool = True,
        timeout: float | None = 60.0,
    ) -> None:
        """Make the environments; see `make_vec`.

        Raises:
            UsageError: The games' pictures differ in size or number.
        """
        self.games, self.settings, self.num_workers = list(games), settings, num_workers
        self.draws, self.copy, self.timeout = render, copy, timeout
        self.num_envs = len(self.games)
        self.metadata = {"autoreset_mode": settings.autoreset, "render_modes": ["rgb_array"]}
        self.render_mode = "rgb_array"
        self._set_spaces()
        self._memory = self._reserve()
        self._table = self._memory.table.array()
        self._frames = self._views(self._memory.frames)
        self._final = self._views(self._memory.final_frames)
        self._copiers = [RecyclingCopier() for _ in self._frames]
        bounds = np.linspace(0, self.num_envs, max(1, num_workers) + 1).astype(int).tolist()
        parts = [slice(start, stop) for start, stop in pairwise(bounds)]
        shard = ProcessShard if num_workers else LocalShard
        self._shards: list[ShardHandle] = [shard(self._memory, self.games[part], settings, part) for part in parts]
        self._finalizer = weakref.finalize(self, _close_all, self._shards)
        self._shard_of = np.repeat(np.arange(len(parts)), [part.stop - part.start for part in parts])
        self._sent: list[list[tuple[int, NDArray[np.intp]]]] = [[] for _ in parts]
        self._count = count()
        self._in_flight = np.zeros(self.num_envs, bool)
        self._started = np.zeros(self.num_envs, bool)
        self._over = np.zeros(self.num_envs, bool)

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
        """
        options = options or {}
        if unknown := sorted(set(options) - {"reset_mask"}):
            raise UsageError(f"there is no reset option {unknown[0]!r}; the only one is 'reset_mask'")
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.dtype != np.bool_ or mask.shape != (self.num_envs,) or not mask.any():
            raise UsageError(f"reset_mask is a bool array of shape ({self.num_envs},) that is not all False")
        ids = self._checked(np.flatnonzero(mask))
        seeds = self._seeds(seed)
        return self._start(ids, [seeds[i] for i in ids], [None] * len(ids))

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take a turn in every environment.

        Raises:
            UsageError: Not one action an environment, one of a wrong type, no reset before, or answers of `send` were
                not taken; nothing was stepped.
            EpisodeEnded: An episode is over and autoreset is disabled; nothing was stepped.
            WorkerError: A process hangs, dies again and again, or a game has a fault; the runner is closed.
        """
        self._nothing_in_flight()
        ids = np.arange(self.num_envs)
        self.send(actions, ids)
        return self._results(ids, self._collect())

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
        ids = self._checked(env_ids)
        if not self._started[ids].all():
            raise UsageError("reset the environments before the first step")
        if self.settings.autoreset is AutoresetMode.DISABLED and self._over[ids].any():
            over = int(ids[self._over[ids]][0])
            raise EpisodeEnded(f"the episode of environment {over} is over: reset it by options={{'reset_mask': mask}}")
        given = actions.tolist() if isinstance(actions, np.ndarray) else list(actions)
        if len(given) != len(ids):
            raise UsageError(f"{len(given)} actions were given for {len(ids)} environments")
        # The action of an environment that this step resets is not looked at.
        given = [
            None if over else action if isinstance(action, Response) else self.games[i].to_action(action)
            for i, over, action in zip(ids, self._over[ids], given, strict=True)
        ]
        for number, shard in enumerate(self._shards):
            mine = np.flatnonzero(self._shard_of[ids] == number)
            if len(mine):
                local = (ids[mine] - shard.part.start).tolist()
                self._submit(number, "step", ids[mine], (local, [given[i] for i in mine]))

    def recv(
        self,
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any], NDArray[np.intp]]:
        """Results of what is ready first: observations, rewards, terminations, truncations, infos and `env_ids`.

        Everything is in the order of `env_ids`, which are those of one process and one `send`; infos have their length.
        Without `copy` the observations are a view if the numbers follow each other without a gap.

        Raises:
            UsageError: Nothing was sent.
            WorkerError: A process hangs, or dies again and again.
        """
        if not self._in_flight.any():
            raise UsageError("send actions before recv")
        ids, reply = self._take(*self._first_ready())
        return *self._results(ids, [(ids, reply)]), ids

    # Positions ------------------------------------------------------------------------------------------------------

    def get_states(self) -> list[Snapshot]:
        """The episode of every environment as a value."""
        return self.call("snapshot")

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
        ids = self._checked(env_ids)
        if len(states) != len(ids):
            raise UsageError(f"{len(states)} states were given for {len(ids)} environments")
        seeds = self._seeds(seed)
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
        if n < 1:
            raise UsageError(f"n is at least 1, not {n}")
        games = [game for game in self.games for _ in range(n)]
        workers = self.num_workers if num_workers is None else min(num_workers, len(games))
        draws = self.draws if render is None else render
        copies = GameVectorEnv(games, self.settings, workers, draws, self.copy, self.timeout)
        copies.set_states([state for state in self.get_states() for _ in range(n)], seed=seed)
        return copies

    def picture(self, env_id: int) -> Picture:
        """The picture of one environment, also if steps are not drawn."""
        ids = self._checked([env_id])
        if self.draws and self._started[ids].all():
            return side_by_side([frames[env_id] for frames in self._frames])
        picture: Picture = self._on_shard("call", ids, ("render", (), {}))[0]
        return picture

    # As Gymnasium has it --------------------------------------------------------------------------------------------

    def render(self) -> tuple[Picture, ...]:
        """The picture of every environment."""
        return tuple(self.picture(i) for i in range(self.num_envs)) if self.draws else tuple(self.call("render"))

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every environment, or get an attribute; see `GameEnv`.

        Raises:
            UsageError: There is no such attribute, or it is one that would change the environments behind the runner.
        """
        if name in _CHANGING or name.startswith("_"):
            raise UsageError(f"{name!r} is not for call: use the runner's own methods")
        return self._on_shard("call", np.arange(self.num_envs), (name, args, kwargs))

    def get_attr(self, name: str) -> list[Any]:
        """An attribute of every environment."""
        return self.call(name)

    def close_extras(self, **kwargs: Any) -> None:
        """End all processes."""
        self._finalizer()

    # ----------------------------------------------------------------------------------------------------------------

    def _set_spaces(self) -> None:
        first = self.games[0]
        if any(game.picture_shapes != first.picture_shapes for game in self.games):
            raise UsageError("all games of a runner need pictures of the same size and number")
        self._shapes = [shape if self.draws else (0, 0, 3) for shape in first.picture_shapes]

        def space(*front: int) -> spaces.Space[Any]:
            boxes = [PictureSpace((*front, *shape)) for shape in self._shapes]
            return boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)

        self.single_observation_space, self.observation_space = space(), space(self.num_envs)
        if all(game.action_space == first.action_space for game in self.games):
            self.single_action_space = first.action_space
            self.action_space = batch_space(first.action_space, self.num_envs)
        else:
            self.action_space = spaces.Tuple([game.action_space for game in self.games])

    def _reserve(self) -> Memory:
        array = SharedArray if self.num_workers else OwnArray

        def frames() -> tuple[OwnArray, ...]:
            return tuple(array((self.num_envs, *shape), np.uint8) for shape in self._shapes)

        same_step = self.settings.autoreset is AutoresetMode.SAME_STEP
        return Memory(
            array((self.num_envs,), ROW),
            frames() if self.draws else None,
            frames() if self.draws and same_step else None,
        )

    def _views(self, memory: tuple[OwnArray, ...] | None) -> list[NDArray[np.uint8]]:
        if memory is None:
            return [np.zeros((self.num_envs, *shape), np.uint8) for shape in self._shapes]
        return [frames.array() for frames in memory]

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise UsageError(f"{len(seed)} seeds were given for {self.num_envs} environments")
        try:
            seeds = [None if each is None else operator.index(each) for each in seed]
        except TypeError:
            raise UsageError(f"a seed is a whole number or None, not as in {seed!r}") from None
        if any(each is not None and not 0 <= each < 2**63 for each in seeds):
            raise UsageError(f"a seed is a number from 0 to 2^63 - 1, not as in {seed!r}")
        return seeds

    def _checked(self, env_ids: Iterable[int] | NDArray[np.integer[Any]] | None) -> NDArray[np.intp]:
        if self.closed:
            raise UsageError("the runner is closed")
        given = np.arange(self.num_envs) if env_ids is None else np.asarray(env_ids)
        ids = given.astype(np.intp)
        numbers = given.dtype.kind in "iu" and ids.ndim == 1 and len(ids) > 0
        if not numbers or ids.min() < 0 or ids.max() >= self.num_envs or len(np.unique(ids)) != len(ids):
            raise UsageError(f"env_ids are different numbers from 0 to {self.num_envs - 1}")
        if self._in_flight[ids].any():
            raise UsageError(f"environment {int(ids[self._in_flight[ids]][0])} has an answer that recv did not take")
        return ids

    def _nothing_in_flight(self) -> None:
        if self.closed:
            raise UsageError("the runner is closed")
        if self._in_flight.any():
            raise UsageError("take all answers of send by recv first")

    def _start(
        self, ids: NDArray[np.intp], seeds: list[int | None], snapshots: list[Snapshot | None]
    ) -> tuple[Any, dict[str, Any]]:
        self._nothing_in_flight()
        for number, shard in enumerate(self._shards):
            mine = np.flatnonzero(self._shard_of[ids] == number)
            if len(mine):
                local = (ids[mine] - shard.part.start).tolist()
                args = (local, [seeds[i] for i in mine], [snapshots[i] for i in mine])
                self._submit(number, "reset", ids[mine], args)
        replies = self._collect()
        self._started[ids] = True
        everything = np.arange(self.num_envs)
        observations, *_, infos = self._results(everything, replies)
        return observations, infos

    def _submit(self, number: int, name: str, ids: NDArray[np.intp], args: tuple[Any, ...]) -> None:
        self._shards[number].submit((name, args))
        self._sent[number].append((next(self._count), ids))
        self._in_flight[ids] = True

    def _collect(self) -> list[tuple[NDArray[np.intp], Reply]]:
        """All answers that are on their way; if one is an error, it is raised when all are in."""
        replies, errors = [], []
        for number, sent in enumerate(self._sent):
            while sent:
                try:
                    replies.append(self._take(number, self.timeout))
                except UsageError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return replies

    def _take(self, number: int, timeout: float | None) -> tuple[NDArray[np.intp], Reply]:
        """The oldest answer of a shard. After a refusal the runner goes on; after anything else it is closed."""
        _, ids = self._sent[number][0]
        reply: Reply = self._answer(number, timeout)
        del self._sent[number][0]
        self._in_flight[ids] = False
        self._over[ids] = self._table["over"][ids]
        return ids, reply

    def _answer(self, number: int, timeout: float | None) -> Any:
        try:
            return self._shards[number].result(timeout)
        except UsageError:
            if self._sent[number]:
                _, ids = self._sent[number].pop(0)
                self._in_flight[ids] = False
            raise
        except BaseException:
            # A process that hangs, a fault in a game, Ctrl-C: what the environments are at is not known any more.
            self.close()
            raise

    def _first_ready(self) -> tuple[int, float | None]:
        """The shard that has been ready longest, by when it was asked; and how long to wait for it."""
        waiting = [number for number, sent in enumerate(self._sent) if sent]
        things = {number: self._shards[number].wait_on() for number in waiting}
        ready = [number for number in waiting if not things[number]]
        if not ready:
            try:
                objects = wait([thing for own in things.values() for thing in own], self.timeout)
            except BaseException:
                self.close()
                raise
            ready = [number for number in waiting if any(thing in objects for thing in things[number])]
        if ready:
            return min(ready, key=lambda number: self._sent[number][0][0]), self.timeout
        return waiting[0], 0.0

    def _on_shard(self, name: str, ids: NDArray[np.intp], args: tuple[Any, ...]) -> list[Any]:
        """Call a method of every shard that has some of these environments, and put the results together."""
        self._nothing_in_flight()
        ids = self._checked(ids)
        if not self._started[ids].all():
            raise UsageError("reset the environments first")
        asked = []
        for number, shard in enumerate(self._shards):
            mine = ids[self._shard_of[ids] == number]
            if len(mine):
                shard.submit((name, ((mine - shard.part.start).tolist(), *args)))
                asked.append(number)
        results: list[Any] = []
        refused: UsageError | None = None
        for number in asked:
            try:
                results += self._answer(number, self.timeout)
            except UsageError as error:
                refused = error
        if refused is not None:
            raise refused
        return results

    def _results(
        self, ids: NDArray[np.intp], replies: list[tuple[NDArray[np.intp], Reply]]
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        rows = self._table[ids]
        infos = self._infos(ids, rows, replies)
        return (
            self._observations(ids),
            rows["reward"].copy(),
            rows["terminated"].copy(),
            rows["truncated"].copy(),
            infos,
        )

    def _observations(self, ids: NDArray[np.intp]) -> Any:
        first, last = int(ids[0]), int(ids[-1])
        together = last - first + 1 == len(ids) and bool((np.diff(ids) == 1).all())
        taken = [frames[first : last + 1] if together else frames[ids] for frames in self._frames]
        if self.copy and together:
            taken = [copier.copy(frames) for copier, frames in zip(self._copiers, taken)]
        elif together:
            for frames in taken:
                frames.flags.writeable = False  # what a user wrote would stay in the pictures
        return taken[0] if len(taken) == 1 else tuple(taken)

    def _infos(
        self, ids: NDArray[np.intp], rows: NDArray[Any], replies: list[tuple[NDArray[np.intp], Reply]]
    ) -> dict[str, Any]:
        place = {int(i): at for at, i in enumerate(ids)}
        answered = np.zeros(len(ids), bool)
        infos: dict[str, Any] = {}
        final: dict[str, Any] = {}
        last_pictures = np.full(len(ids), None, object)
        for own, reply in replies:
            start = self._shards[int(self._shard_of[own[0]])].part.start
            answered[[place[int(i)] for i in own]] = True
            for local, words in reply.words.items():
                infos = self._add_info(infos, words, place[local + start])
            for local, info in reply.final_info.items():
                final = self._add_info(final, info, place[local + start])
                pictures = [frames[local + start].copy() for frames in self._final]
                last_pictures[place[local + start]] = pictures[0] if len(pictures) == 1 else tuple(pictures)
        infos = _cut(infos, len(ids))
        for name in ("score", "turn", "seed"):
            infos[name], infos[f"_{name}"] = rows[name].copy(), answered
        infos["outcome"], infos["_outcome"] = _WORDS[rows["outcome"]], answered
        if final:
            ended = np.array([picture is not None for picture in last_pictures])
            infos |= {
                "final_info": _cut(final, len(ids)),
                "_final_info": ended,
                "final_obs": last_pictures,
                "_final_obs": ended,
            }
        return infos


def _cut(infos: dict[str, Any], length: int) -> dict[str, Any]:
    """Infos as Gymnasium makes them for all environments, of the first so many."""
    return {name: _cut(each, length) if isinstance(each, dict) else each[:length] for name, each in infos.items()}


def _close_all(shards: list[ShardHandle]) -> None:
    for shard in shards:
        shard.close()
