"""A shard in a process of its own, which is started again if it dies, or in this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import traceback
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from vlmgym.errors import VlmgymError, WorkerError
from vlmgym.sandbox.game import Game
from vlmgym.sandbox.processes import interrupts_left_to_parent, live_with_parent
from vlmgym.sandbox.shard import Checkpoint, Reply, Settings, Shard
from vlmgym.sandbox.shared_memory import OwnArray

Call = tuple[str, tuple[Any, ...]]
"""A method of `Shard` and its arguments."""

RESTARTS = 3
"""How often in a row a process may die over the same call."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The arrays that all shards of a runner write into, each into its own part.

    Attributes:
        table: `ROW` of every environment.
        frames: For each picture of the games, the frames of every environment.
        final_frames: Likewise, last frames of episodes that are reset in the step that ends them.
    """

    table: OwnArray
    frames: tuple[OwnArray, ...] | None
    final_frames: tuple[OwnArray, ...] | None

    def shard(self, games: Sequence[Game[Any, Any]], settings: Settings, part: slice) -> Shard:
        """A shard over a part of the environments."""
        return Shard(
            games,
            settings,
            self.table.array()[part],
            None if self.frames is None else [frames.array()[part] for frames in self.frames],
            None if self.final_frames is None else [frames.array()[part] for frames in self.final_frames],
        )


class ShardHandle(Protocol):
    """How the vector runner speaks to a shard; calls are answered in their order."""

    part: slice
    """Numbers of its environments."""

    def submit(self, call: Call) -> None:
        """Begin a call."""

    def result(self, timeout: float | None) -> Any:
        """Wait for the oldest call that was begun, and return or raise what it did."""

    def wait_on(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`; empty if a result is there already."""

    def close(self) -> None:
        """End it."""


class LocalShard:
    """A shard in this process: a call is over when it is begun."""

    def __init__(self, memory: Memory, games: Sequence[Game[Any, Any]], settings: Settings, part: slice) -> None:
        self.part = part
        self._shard = memory.shard(games, settings, part)
        self._results: deque[tuple[Any, VlmgymError | None]] = deque()

    def submit(self, call: Call) -> None:
        """Do it."""
        self._results.append(_answer(self._shard, call))

    def result(self, timeout: float | None) -> Any:
        """Return or raise what the oldest call did."""
        result, error = self._results.popleft()
        if error is not None:
            raise error
        return result

    def wait_on(self) -> list[Any]:
        """Nothing to wait for."""
        return []

    def close(self) -> None:
        """Let go of the environments."""
        del self._shard


class ProcessShard:
    """A shard in a process. If it dies, another goes on from its last checkpoints, with a warning."""

    def __init__(self, memory: Memory, games: Sequence[Game[Any, Any]], settings: Settings, part: slice) -> None:
        self.part = part
        self._memory, self._games, self._settings = memory, games, settings
        self._calls: deque[Call] = deque()
        self._checkpoints: list[Checkpoint | None] = [None] * len(games)
        self._since: list[list[Any]] = [[] for _ in games]
        self._deaths = 0
        self._start()

    def submit(self, call: Call) -> None:
        """Send it."""
        self._calls.append(call)
        if len(self._calls) == 1:  # one call at a time, so that both sides never write at once
            self._send_next()

    def result(self, timeout: float | None) -> Any:
        """Wait for the oldest call.

        Raises:
            WorkerError: The process hangs, or dies again and again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not wait([self._pipe, self._process.sentinel], left):
                message = f"{self._name()} did not answer in time"
                self.close()
                raise WorkerError(message)
            try:
                result, error = self._pipe.recv()
            except (EOFError, OSError):
                self._restart(timeout)
                continue
            break
        call = self._calls.popleft()
        self._send_next()
        self._deaths = 0
        if error is not None:
            raise error
        self._remember(call, result)
        return result

    def wait_on(self) -> list[Any]:
        """The pipe, and the process's end."""
        return [self._pipe, self._process.sentinel]

    def close(self) -> None:
        """End the process, by force if it does not listen; doing it twice is fine."""
        self._pipe.close()
        self._process.join(0.5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        args = (theirs, self._memory, self._games, self._settings, self.part)
        self._process = context.Process(target=_serve, args=args, daemon=True, name=f"vlmgym {self._environments()}")
        with interrupts_left_to_parent():
            self._process.start()
        theirs.close()

    def _send_next(self) -> None:
        # If it has died, `result` starts it again and sends the call once more.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self._calls:
                self._pipe.send(self._calls[0])

    def _restart(self, timeout: float | None) -> None:
        self._process.join()
        code, self._deaths = self._process.exitcode, self._deaths + 1
        if self._deaths > RESTARTS:
            raise WorkerError(
                f"{self._name()} died {self._deaths} times over the same call, last with exit code {code}; if memory "
                'ran out, use fewer environments; a script needs `if __name__ == "__main__":` around its main part'
            )
        if any(checkpoint is not None for checkpoint in self._checkpoints):
            text = f"{self._name()} died (exit code {code}); its environments go on in another from their last states"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        self._pipe.close()
        self._start()
        try:
            self._pipe.send(("restore", (self._checkpoints, self._since)))
            if not self._pipe.poll(timeout):
                raise WorkerError(f"{self._name()} did not answer in time")
            result, error = self._pipe.recv()
        except (EOFError, OSError):
            return self._restart(timeout)
        if error is not None:
            raise error
        self._remember(("restore", ()), result)
        return self._send_next()

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


def _serve(pipe: Connection, memory: Memory, games: Sequence[Game[Any, Any]], settings: Settings, part: slice) -> None:
    """Answer calls until the pipe is closed."""
    live_with_parent()
    shard = memory.shard(games, settings, part)
    while True:
        try:
            call = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        answer = _answer(shard, call)
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def _answer(shard: Shard, call: Call) -> tuple[Any, VlmgymError | None]:
    """What a call returns, or the error that it ends in."""
    name, args = call
    try:
        return getattr(shard, name)(*args), None
    except VlmgymError as error:
        return None, error
    except Exception as error:
        # A fault in a game's code: it would only happen again in another process.
        traceback.print_exc()
        return None, WorkerError(f"a game raised {type(error).__name__}: {error}")
