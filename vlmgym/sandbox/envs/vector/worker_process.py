"""A worker in a process of its own, which is started again if it dies, or in this process."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import socket
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vlmgym.errors import UsageError, VlmgymError, WorkerError
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray
from vlmgym.sandbox.envs.vector.worker import EnvWorker, Reply, Settings
from vlmgym.workers.channel import UNPICKLABLE, Channel, ChannelClosed
from vlmgym.workers.process import RESTARTS, block_sigint, exit_with_parent

Call = tuple[str, tuple[Any, ...]]
"""A method of `EnvWorker` and its arguments."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The arrays that all workers of a runner write into, each into its own part.

    Attributes:
        table: `ROW` of every environment.
        frames: For each image of the games, the frames of every environment.
        final_frames: Likewise, last frames of episodes that are reset in the step that ends them.
    """

    table: PrivateArray
    frames: tuple[PrivateArray, ...] | None
    final_frames: tuple[PrivateArray, ...] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is made from, here or in another process.

    Attributes:
        games: The game of each of its environments.
        settings: What all environments of the runner have in common.
        attributes: What `set_attr` gave each of its environments, which a process that is started again needs, too.
        part: Numbers of its environments.
        memory: The runner's.
    """

    games: Sequence[Game[Any, Any]]
    settings: Settings
    attributes: Sequence[dict[str, Any]]
    part: slice
    memory: Memory

    def make(self) -> EnvWorker:
        """The worker."""
        memory, part = self.memory, self.part
        return EnvWorker(
            self.games,
            self.settings,
            self.attributes,
            part.start,
            memory.table.array()[part],
            memory.frames,
            None if memory.final_frames is None else [frames.array()[part] for frames in memory.final_frames],
        )


class WorkerHandle(Protocol):
    """How the vector runner speaks to a worker; calls are answered in their order."""

    part: slice
    """Numbers of its environments."""

    def pack(self, call: Call) -> Any:
        """A call as `submit` takes it; raises `UsageError` if it cannot be sent."""

    def submit(self, packed: Any, timeout: float | None) -> None:
        """Begin a call."""

    def result(self, timeout: float | None) -> Any:
        """Wait for the oldest call that was begun, and return or raise what it did."""

    def wait_on(self) -> Any | None:
        """An object for `multiprocessing.connection.wait`; None if a result is there already."""

    def close(self) -> None:
        """End it."""


class Link(Protocol):
    """How a worker in another process is spoken to; see `Channel`."""

    def pack(self, message: Any) -> bytes:
        """A message as `send` takes it; raises what `UNPICKLABLE` names."""

    def send(self, packed: bytes, timeout: float | None) -> None:
        """Send a packed message; raises `TimeoutError` or `ChannelClosed`."""

    def receive(self, timeout: float | None) -> Any:
        """Wait for the answer to the oldest message; raises `TimeoutError` or `ChannelClosed`."""

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`."""

    def close(self) -> None:
        """Close it; doing it twice is fine."""


class LocalWorker:
    """A worker in this process: a call is over when it is begun."""

    def __init__(self, plan: Plan) -> None:
        self.part = plan.part
        self._worker = plan.make()
        self._results: deque[tuple[Any, VlmgymError | None]] = deque()

    def pack(self, call: Call) -> Call:
        """As it is."""
        return call

    def submit(self, packed: Call, timeout: float | None) -> None:
        """Do it."""
        self._results.append(answer(self._worker, packed))

    def result(self, timeout: float | None) -> Any:
        """Return or raise what the oldest call did."""
        result, error = self._results.popleft()
        if error is not None:
            raise error
        return result

    def wait_on(self) -> None:
        """Nothing to wait for."""
        return

    def close(self) -> None:
        """Let go of the environments."""
        del self._worker


@dataclass(frozen=True, slots=True)
class _Packed:
    """A call, and as it is sent."""

    call: Call
    message: bytes


class ProcessWorker:
    """A worker in a process. If it dies, another goes on from its last checkpoints, with a warning."""

    _channel: Link

    def __init__(self, plan: Plan) -> None:
        self.part = plan.part
        self._plan = plan
        self._calls: deque[_Packed] = deque()
        self._checkpoints: list[bytes | None] = [None] * len(plan.games)
        self._since: list[list[Any]] = [[] for _ in plan.games]
        self._deaths = 0
        self._start()

    def pack(self, call: Call) -> _Packed:
        """The call as bytes.

        Raises:
            UsageError: It cannot be pickled.
        """
        try:
            return _Packed(call, self._channel.pack(call))
        except UNPICKLABLE as error:
            raise UsageError(f"a worker process cannot be handed that: {error}") from None

    def submit(self, packed: _Packed, timeout: float | None) -> None:
        """Send it.

        Raises:
            WorkerError: The process hangs.
        """
        self._calls.append(packed)
        if len(self._calls) == 1:  # one call at a time, so that both sides never write at once
            self._send_next(timeout)

    def result(self, timeout: float | None) -> Any:
        """Wait for the oldest call.

        Raises:
            WorkerError: The process hangs, or dies again and again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                result, error = self._channel.receive(None if until is None else max(0.0, until - time.monotonic()))
                break
            except ChannelClosed:
                self._restart(timeout)
            except TimeoutError:
                raise self._hung() from None
        call = self._calls.popleft().call
        self._send_next(timeout)
        self._deaths = 0
        if error is not None:
            raise error
        self._remember(call, result)
        return result

    def wait_on(self) -> Link:
        """Where the answer comes from, or the news that the process is gone."""
        return self._channel

    def close(self) -> None:
        """End the process, by force if it does not listen; doing it twice is fine."""
        self._channel.close()
        self._process.join(0.5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        context = multiprocessing.get_context("spawn")
        name = f"vlmgym {self._environments()}"
        self._process = context.Process(target=_serve, args=(theirs, self._plan), daemon=True, name=name)
        with block_sigint():
            self._process.start()
        theirs.close()

    def _send_next(self, timeout: float | None) -> None:
        # If it has died, `result` starts it again and sends the call once more.
        with contextlib.suppress(ChannelClosed):
            if self._calls:
                self._send(self._calls[0].message, timeout)

    def _send(self, message: bytes, timeout: float | None) -> None:
        try:
            self._channel.send(message, timeout)
        except TimeoutError:
            raise self._hung() from None

    def _restart(self, timeout: float | None) -> None:
        death, self._deaths = self._death(), self._deaths + 1
        if self._deaths > RESTARTS:
            raise WorkerError(
                f"{self._name()} died {self._deaths} times over the same call, last with {death}; if memory "
                'ran out, use fewer environments; a script needs `if __name__ == "__main__":` around its main part'
            )
        if any(checkpoint is not None for checkpoint in self._checkpoints):
            text = f"{self._name()} died ({death}); its environments go on in another from their last states"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        self._channel.close()
        self._start()
        restore: Call = ("restore", (self._checkpoints, self._since))
        try:
            self._send(self._channel.pack(restore), timeout)
            result, error = self._channel.receive(timeout)
        except ChannelClosed:
            return self._restart(timeout)
        except TimeoutError:
            raise self._hung() from None
        if error is not None:
            raise error
        self._remember(restore, result)
        return self._send_next(timeout)

    def _death(self) -> str:
        """How the process that is gone has ended."""
        self._process.join()
        return f"exit code {self._process.exitcode}"

    def _hung(self) -> WorkerError:
        """What to raise of a process that did not read or answer in time, and is ended."""
        error = WorkerError(f"{self._name()} did not answer in time")
        self.close()
        return error

    def _remember(self, call: Call, result: Any) -> None:
        """Keep what is needed to restore the environments: a checkpoint of each, and its actions since."""
        if not isinstance(result, Reply):
            return
        name, args = call
        if name == "step":
            for i, action in zip(*args, strict=True):
                self._since[i].append(action)
        for i, checkpoint in result.checkpoints.items():
            self._checkpoints[i], self._since[i] = checkpoint, []

    def _name(self) -> str:
        return f"worker process {self._process.pid} ({self._environments()})"

    def _environments(self) -> str:
        return f"environments {self.part.start} to {self.part.stop - 1}"


def _serve(end: socket.socket, plan: Plan) -> None:
    """Answer calls until the channel is closed."""
    exit_with_parent()
    gc.freeze()  # what was imported stays, and need not be looked through for garbage again and again
    channel, worker = Channel(end), plan.make()
    with contextlib.suppress(ChannelClosed):
        while True:
            channel.send(packed(answer(worker, channel.receive()), Channel.pack))


def packed(answered: tuple[Any, VlmgymError | None], pack: Callable[[Any], bytes]) -> bytes:
    """An answer as it is sent; one that cannot be is a `UsageError`."""
    try:
        return pack(answered)
    except UNPICKLABLE as error:
        return pack((None, UsageError(f"a worker process cannot hand that over: {error}")))


def answer(worker: EnvWorker, call: Call) -> tuple[Any, VlmgymError | None]:
    """What a call returns, or the error that it ends in."""
    name, args = call
    try:
        return getattr(worker, name)(*args), None
    except VlmgymError as error:
        return None, error
    except Exception as error:
        # A fault in a game's code: it would only happen again in another process.
        traceback.print_exc()
        return None, WorkerError(f"a game raised {type(error).__name__}: {error}")
