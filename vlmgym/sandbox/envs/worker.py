"""The workers of a vector environment: they step groups of environments, which draw into shared memory.

The memory has no name in any file system. It is therefore freed with the last process that uses it, even if processes
are killed, and not limited by the size of /dev/shm (64 MB by default in containers).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from multiprocessing import reduction
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import DTypeLike, NDArray

from vlmgym.errors import UsageError, VlmgymError, WorkerError
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.drawing.encode import side_by_side
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.workers.process import ChannelClosed, Result, WorkerProcess

Ids = NDArray[np.intp]
"""Indices of environments in the vector environment."""
Call = tuple[str, tuple[Any, ...]]
"""Name of a method of `EnvWorker`, and its arguments."""
OUTCOME_NAMES = ("", *(outcome.value for outcome in Outcome))
"""Names of the values 0, 1, ... of `outcome` in `STEP_DTYPE`; 0 stands for a reset."""
STEP_DTYPE = np.dtype(
    [
        ("reward", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("over", np.bool_),
        ("score", np.float64),
        ("turn", np.int64),
        ("seed", np.int64),
        ("outcome", np.uint8),
    ]
)
"""Numeric results of one environment after a step or reset."""
StepNumbers = tuple[float, bool, bool, bool, float, int, int, int]
"""One element of an array of type `STEP_DTYPE`."""


# Memory ---------------------------------------------------------------------------------------------------------------


class PrivateArray:
    """An array in the memory of this process, initially zero."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Reserve the memory; its pages are allocated on first access.

        Raises:
            MemoryError: Out of memory.
        """
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._buffer = self._reserve(max(1, self.nbytes))

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def array(self) -> NDArray[Any]:
        """Return a view of the array; the memory is freed once no process has this object or a view of it."""
        return np.frombuffer(self._buffer, self.dtype, self.nbytes // self.dtype.itemsize).reshape(self.shape)

    def _reserve(self, size: int) -> Any:
        return np.zeros(size, np.uint8)


class SharedArray(PrivateArray):
    """An array that is shared with all processes that receive the object when they are spawned.

    The first access is ten times slower than in private memory, and takes 1 ms for a frame of 640 x 640 pixels, because
    the system allocates and clears each page separately.
    """

    def _reserve(self, size: int) -> Any:
        self._file = _anonymous_file(size)
        return mmap.mmap(self._file, size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the file descriptor; this works only while a process is being spawned."""
        return _attach, (self.shape, self.dtype, reduction.DupFd(self._file))

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


def _attach(shape: tuple[int, ...], dtype: np.dtype[Any], file: Any) -> SharedArray:
    array = SharedArray.__new__(SharedArray)
    array.shape, array.dtype = shape, dtype
    array._file = file.detach()
    array._buffer = mmap.mmap(array._file, max(1, array.nbytes))
    return array


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("vlmgym")
    else:
        with tempfile.TemporaryFile() as temporary_file:
            file = os.dup(temporary_file.fileno())
    os.ftruncate(file, size)
    return file


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """Arrays of a vector environment; each worker writes the elements of its environments.

    Attributes:
        numbers: `STEP_DTYPE`, shape (num_envs,).
        frames: For each image of the game, uint8 of shape (num_envs, height, width, 3); (num_envs, 0, 0, 3) if nothing
            is drawn.
        final_frames: Last images of ended episodes in autoreset mode `SAME_STEP`, shaped like `frames`.
        masks: 1 for legal actions, else 0, int8 of shape (num_envs, actions); None without action masks.
    """

    numbers: PrivateArray
    frames: list[PrivateArray]
    final_frames: list[PrivateArray]
    masks: PrivateArray | None


# Environments ---------------------------------------------------------------------------------------------------------


MOST_MASKED = 10_000
"""Maximum number of actions of a game with action masks."""


def listed_actions(game: Game[Any, Any]) -> list[Any]:
    """List the actions of a game in the order of its action masks: that of the space, the last number fastest.

    Raises:
        UsageError: The space is not discrete or too large, or the game does not list the legal actions.
    """
    actions = game.answer.actions(MOST_MASKED)
    if actions is None or isinstance(game, Task):
        raise UsageError(f"{game.name} has no action masks: they need a game of at most {MOST_MASKED:,} listed actions")
    return actions


@dataclass(frozen=True, slots=True)
class EnvSettings:
    """Settings that all environments of a vector environment share."""

    reward: RewardConfig
    autoreset: AutoresetMode
    max_turns: int | None
    action_masks: bool
    render: bool


class FrameEnv(GameEnv):
    """A `GameEnv` that draws into the vector environment's memory instead of returning observations.

    After the first frame, only changes are drawn.
    """

    def __init__(self, game: Game[Any, Any], settings: EnvSettings, frames: list[ImageArray]) -> None:
        """Create an environment that draws into `frames`."""
        super().__init__(game, reward=settings.reward, render_mode="rgb_array")
        self.settings, self.frames = settings, frames
        self._drawn: Any = None
        self._listed: Any = None
        self.over = False
        self.last_outcome = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `GameEnv.reset`; the observation returned is None."""
        result = super().reset(seed=seed, options=options)
        self.last_outcome = ""
        self.over = self.episode.ended is not None or self._at_limit()
        return result

    def play(self, action: Any) -> tuple[float, bool, bool]:
        """Take a turn with an action from `to_action`; return reward, terminated and truncated."""
        scored = self._take_turn(action)
        self._draw()
        truncated = not scored.terminated and self._at_limit()
        self.over = scored.terminated or truncated
        self.last_outcome = scored.outcome.value
        return scored.total, scored.terminated, truncated

    def _at_limit(self) -> bool:
        return self.settings.max_turns is not None and self.episode.turn >= self.settings.max_turns

    def render(self) -> ImageArray:
        """Draw and return the current image, even if steps are not drawn."""
        return side_by_side(self.game.images(self.episode.state))

    def changed_actions(self) -> Sequence[Any] | None:
        """List the legal actions, of which there are none after the end; None if the state is that of the last call."""
        state = self.episode.state
        if state is self._listed:
            return None
        self._listed = state
        return self.game.legal_actions(state) or ()

    def numbers(self, reward: float, terminated: bool, truncated: bool) -> StepNumbers:
        """Return the numeric results of the last step or reset, in the order of `STEP_DTYPE`."""
        episode, outcome = self.episode, OUTCOME_NAMES.index(self.last_outcome)
        return reward, terminated, truncated, self.over, episode.score, episode.turn, episode.seed, outcome

    def _draw(self) -> None:
        if self.settings.render:
            self.game.draw_into(self.episode.state, self.frames, self._drawn)
            self._drawn = self.episode.state

    def _observation(self) -> None:
        return None

    def _info(self, scored: Scored[Any, Any] | None) -> dict[str, Any]:
        return {}


FinalInfos = dict[int, dict[str, Any]]
"""Last info of each ended episode in autoreset mode `SAME_STEP`, keyed by the index of the environment."""


class EnvWorker:
    """Environments that are stepped in turn. Methods take environment indices within the worker, from 0."""

    def __init__(self, game: Game[Any, Any], settings: EnvSettings, part: slice, buffers: StepBuffers) -> None:
        """Create the environments.

        Args:
            game: The game.
            settings: Settings that all environments of the vector environment share.
            part: Indices of the worker's environments in the vector environment.
            buffers: Arrays of the vector environment.
        """
        self.settings, self.start = settings, part.start
        self.numbers = buffers.numbers.array()[part]
        self.final_frames = [frames.array()[part] for frames in buffers.final_frames]
        self.masks = None if buffers.masks is None else buffers.masks.array()[part]
        self._columns = {} if buffers.masks is None else {action: i for i, action in enumerate(listed_actions(game))}
        frames = [frames.array()[part] for frames in buffers.frames]
        self.envs = [FrameEnv(game, settings, [images[i] for images in frames]) for i in range(part.stop - part.start)]

    def handle(self, name: str, args: tuple[Any, ...]) -> Any:
        """Call a method by name.

        Raises:
            VlmgymError: As raised by the method.
            WorkerError: A game failed to draw.
        """
        try:
            return getattr(self, name)(*args)
        except VlmgymError:
            raise
        except Exception as error:
            raise WorkerError(f"a game raised {type(error).__name__}: {error}") from error

    def reset(self, ids: Sequence[int], seeds: Sequence[int | None], snapshots: Sequence[Snapshot | None]) -> None:
        """Start or restore episodes; see `GameEnv.reset`.

        Raises:
            GameError: A game failed; other environments may have started their episodes.
        """
        numbers = [self._start(i, seed, snapshot) for i, seed, snapshot in zip(ids, seeds, snapshots, strict=True)]
        self.numbers[ids] = numbers
        self._write_masks(ids)

    def step(self, ids: Sequence[int], actions: Sequence[Any]) -> FinalInfos:
        """Take a turn in some environments, with one action from `to_action` each.

        Raises:
            GameError: A game failed; other environments may have taken their turns.
        """
        final_infos: FinalInfos = {}
        numbers = [self._step(i, action, final_infos) for i, action in zip(ids, actions, strict=True)]
        self.numbers[ids] = numbers  # all at once: setting one element of a structured array is slower than most games
        self._write_masks(ids)
        return final_infos

    def call(self, ids: Sequence[int], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Get an attribute of each environment, or call it if it is a method."""
        results = []
        for i in ids:
            if not hasattr(self.envs[i], name):
                raise UsageError(f"the environments have no attribute {name!r}")
            attribute = getattr(self.envs[i], name)
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return results

    def _write_masks(self, ids: Sequence[int]) -> None:
        if self.masks is None:
            return
        columns, legal = self._columns, dict[int, list[int]]()
        for i in ids:
            if (actions := self.envs[i].changed_actions()) is not None:
                legal[i] = [columns[action] for action in actions]
        if legal:
            changed_ids = [*legal]
            self.masks[changed_ids] = 0
            self.masks[np.repeat(changed_ids, [*map(len, legal.values())]), [*chain.from_iterable(legal.values())]] = 1

    def _step(self, i: int, action: Any, final_infos: FinalInfos) -> StepNumbers:
        env = self.envs[i]
        if env.over:  # AutoresetMode.NEXT_STEP ignores the action
            return self._start(i)
        reward, terminated, truncated = env.play(action)
        if env.over and self.settings.autoreset is AutoresetMode.SAME_STEP:
            episode = env.episode
            final_infos[self.start + i] = {
                "score": episode.score,
                "turn": episode.turn,
                "seed": episode.seed,
                "outcome": env.last_outcome,
            }
            for frames, frame in zip(self.final_frames, env.frames):
                frames[i] = frame
            self._start(i)
        return env.numbers(reward, terminated, truncated)

    def _start(self, i: int, seed: int | None = None, snapshot: Snapshot | None = None) -> StepNumbers:
        env = self.envs[i]
        env.reset(seed=seed, options=None if snapshot is None else {"snapshot": snapshot})
        return env.numbers(0.0, False, False)


# Workers --------------------------------------------------------------------------------------------------------------


class LocalWorker:
    """A worker in this process; `submit` executes the call before it returns.

    Attributes:
        part: Indices of the worker's environments in the vector environment.
    """

    def __init__(self, game: Game[Any, Any], settings: EnvSettings, part: slice, buffers: StepBuffers) -> None:
        self.part = part
        self._worker = EnvWorker(game, settings, part, buffers)
        self._results: deque[Result] = deque()

    def pack(self, call: Call) -> Any:
        """Prepare a call for `submit`: return it unchanged."""
        return call

    def submit(self, packed: Any, timeout: float | None) -> None:
        """Execute a call and store its result."""
        try:
            self._results.append(Result(self._worker.handle(*packed), None))
        except VlmgymError as error:
            self._results.append(Result(None, error))

    def result(self, timeout: float | None) -> Any:
        """Take the oldest stored result; return its value or raise its error."""
        return self._results.popleft().get()

    def waitable(self) -> None:
        """Return None, because results are available immediately."""
        return

    def close(self) -> None:
        """Release the environments."""
        del self._worker


class RemoteWorker:
    """A worker in another process, with the methods of `LocalWorker`."""

    def __init__(self, game: Game[Any, Any], settings: EnvSettings, part: slice, buffers: StepBuffers) -> None:
        self.part = part
        self._environments = f"environments {part.start} to {part.stop - 1}"
        self.process = WorkerProcess(_make_handler, game, settings, part, buffers, name=f"vlmgym {self._environments}")
        self._calls: deque[bytes] = deque()

    def pack(self, call: Call) -> Any:
        """Pickle a call; raise `UsageError` if it cannot be pickled."""
        return self.process.pack(*call)

    def submit(self, packed: Any, timeout: float | None) -> None:
        """Send a call, or queue it if another is being handled.

        Sending one call at a time ensures that the two processes never both block on writing.

        Raises:
            WorkerError: The process hangs.
        """
        self._calls.append(packed)
        if len(self._calls) == 1:
            self._send_next(timeout)

    def result(self, timeout: float | None) -> Any:
        """Wait for the oldest unfinished call; return its value or raise its error.

        Raises:
            WorkerError: The process hangs or died.
        """
        try:
            result = self.process.receive(timeout)
        except TimeoutError:
            raise self._failed("timed out") from None
        except ChannelClosed:
            advice = 'scripts need `if __name__ == "__main__":` around their main part'
            raise self._failed(
                f"died ({self.process.exit_status()}); if it ran out of memory, use fewer environments; {advice}"
            ) from None
        self._calls.popleft()
        self._send_next(timeout)
        return result.get()

    def waitable(self) -> WorkerProcess:
        """Return the process, which becomes readable when a result is available or it dies."""
        return self.process

    def close(self) -> None:
        """Stop the process; kill it if it is busy. Idempotent."""
        self.process.close()

    def _send_next(self, timeout: float | None) -> None:
        with contextlib.suppress(ChannelClosed):  # `result` reports the death
            if self._calls:
                try:
                    self.process.send(self._calls[0], timeout)
                except TimeoutError:
                    raise self._failed("timed out") from None

    def _failed(self, reason: str) -> WorkerError:
        """Stop the process and return the error to raise."""
        error = WorkerError(f"{self.process.name} ({self._environments}) {reason}; the vector environment is closed")
        self.close()
        return error


def _make_handler(*args: Any) -> Callable[[str, tuple[Any, ...]], Any]:
    """Create the environments in a worker process; return the function that handles calls."""
    return EnvWorker(*args).handle


class WorkerGroup:
    """Sends each worker the part of a call that concerns its environments.

    A `UsageError` changes no environment. After any other error (a hanging or dead worker, a bug in a game, Ctrl-C),
    the state of the environments is unknown, and the group closes.

    Attributes:
        all: Indices of all environments.
        closed: True once the group is closed.
        in_flight: Bool array of shape (num_envs,); True for environments whose reply has not been collected.
    """

    def __init__(self, workers: Sequence[LocalWorker | RemoteWorker]) -> None:
        """Manage these workers, which must be in the order of their environments."""
        self.workers = workers
        self.closed = False
        sizes = [worker.part.stop - worker.part.start for worker in workers]
        self._worker_of = np.repeat(np.arange(len(workers)), sizes)
        self._sent: list[tuple[int, Ids]] = []  # worker and environments of each call without a reply, in order
        self.all = np.arange(len(self._worker_of))
        self.in_flight = np.zeros(len(self._worker_of), bool)

    def submit(
        self, name: str, ids: Ids, *columns: Sequence[Any], args: Sequence[Any] = (), timeout: float | None
    ) -> None:
        """Start a call without waiting for it.

        Args:
            name: Method of `EnvWorker` whose first argument is the indices of environments.
            ids: Indices of the environments in the vector environment.
            columns: Next arguments of the method, each with one value per environment.
            args: Last arguments of the method, the same for all workers.
            timeout: Seconds after which a worker that does not read the call counts as hanging; None to wait forever.

        Raises:
            UsageError: The call cannot be pickled; no worker has received it.
            WorkerError: A worker hangs.
        """
        calls = []
        for number, at, local in self._parts(ids):
            parts = (column[at] if isinstance(at, slice) else [column[i] for i in at] for column in columns)
            calls.append((number, ids[at], self.workers[number].pack((name, (local, *parts, *args)))))
        try:
            for number, env_ids, packed in calls:
                self.workers[number].submit(packed, timeout)
                self._sent.append((number, env_ids))
                self.in_flight[env_ids] = True
        except BaseException:
            self.close()
            raise

    def collect(self, timeout: float | None) -> list[tuple[Ids, Any]]:
        """Wait for all replies in flight; return them with the indices of their environments.

        If workers raised `UsageError`, raise the first one after all replies have arrived.
        """
        replies, errors = [], []
        while self._sent:
            try:
                replies.append(self._take(self._sent[0][0], timeout))
            except UsageError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return replies

    def take(self, timeout: float | None) -> tuple[Ids, Any]:
        """Wait for one reply and return it with the indices of its environments.

        If several are ready, take the one whose call was sent first.
        """
        waiting: dict[int, Any] = {number: self.workers[number].waitable() for number, _ in self._sent}
        ready: list[Any] = [None]
        if None not in waiting.values():
            try:
                ready = wait(waiting.values(), timeout)
            except BaseException:
                self.close()
                raise
        number = next((number for number, waitable in waiting.items() if waitable in ready), None)
        return self._take(self._sent[0][0], 0.0) if number is None else self._take(number, timeout)

    def close(self) -> None:
        """Stop all workers. Idempotent."""
        if not self.closed:
            self.closed = True
            for worker in self.workers:
                worker.close()

    def _parts(self, ids: Ids) -> Iterator[tuple[int, slice | Ids, Sequence[int]]]:
        """Split indices of environments by worker.

        Yields:
            For each worker with at least one of `ids`: its number, the positions of its environments in `ids`, and the
            indices of these environments within the worker.
        """
        if ids is self.all:
            for number, worker in enumerate(self.workers):
                yield number, worker.part, range(worker.part.stop - worker.part.start)
            return
        worker_of = self._worker_of[ids]
        for number, worker in enumerate(self.workers):
            at = np.flatnonzero(worker_of == number)
            if len(at):
                yield number, at, (ids[at] - worker.part.start).tolist()

    def _take(self, number: int, timeout: float | None) -> tuple[Ids, Any]:
        """Wait for the oldest reply of a worker."""
        try:
            reply = self.workers[number].result(timeout)
        except UsageError:
            self._pop_sent(number)
            raise
        except BaseException:
            self.close()
            raise
        return self._pop_sent(number), reply

    def _pop_sent(self, number: int) -> Ids:
        oldest = next(place for place, (worker, _) in enumerate(self._sent) if worker == number)
        _, ids = self._sent.pop(oldest)
        self.in_flight[ids] = False
        return ids
