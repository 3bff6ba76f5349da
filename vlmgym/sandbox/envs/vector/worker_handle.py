"""Handles for workers in this process, and for workers in other processes, which are restarted if they die."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from vlmgym.errors import VlmgymError, WorkerError
from vlmgym.sandbox.envs.vector.worker import CHECKPOINT_INTERVAL, EnvWorker, StepReply, WorkerSpec
from vlmgym.workers.channel import ChannelClosed
from vlmgym.workers.messages import Result
from vlmgym.workers.process import RESTARTS, Worker, WorkerProcess

Call = tuple[str, tuple[Any, ...]]
"""Name of a method of `EnvWorker`, and its arguments."""


class WorkerHandle(Protocol):
    """A worker as seen by the vector environment. Calls are handled in order."""

    part: slice
    """Indices of the worker's environments in the vector environment."""

    def pack(self, call: Call) -> Any:
        """Prepare a call for `submit`; raise `UsageError` if it cannot be sent."""

    def submit(self, packed: Any, timeout: float | None) -> None:
        """Start a call."""

    def result(self, timeout: float | None) -> Any:
        """Wait for the oldest unfinished call; return its value or raise its error."""

    def waitable(self) -> Any | None:
        """Return an object for `multiprocessing.connection.wait`; None if a result is available."""

    def close(self) -> None:
        """Stop the worker."""


class LocalWorker:
    """A worker in this process; `submit` executes the call before it returns."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.part = spec.part
        self._worker = EnvWorker(spec)
        self._results: deque[Result] = deque()

    def pack(self, call: Call) -> Call:
        """Return the call unchanged."""
        return call

    def submit(self, packed: Call, timeout: float | None) -> None:
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


@dataclass(frozen=True, slots=True)
class _Packed:
    call: Call
    message: bytes


class _Step(NamedTuple):
    number: int
    ids: Sequence[int]
    actions: Sequence[Any]


class RestartingWorker:
    """A worker in another process. If it dies, a new process resumes from the last checkpoints, with a warning."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.part = spec.part
        self._spec = spec
        self._calls: deque[_Packed] = deque()
        self._checkpoints: list[bytes | None] = [None] * len(spec.games)
        self._saved = [0] * len(spec.games)  # for each checkpoint, the number of the call that returned it
        self._steps: deque[_Step] = deque()  # at least all steps since the oldest checkpoint
        self._kept = 0  # total number of environment steps in `_steps`
        self._number = 0
        self._deaths = 0
        self._worker = self._start()

    def pack(self, call: Call) -> _Packed:
        """Pickle a call; raise `UsageError` if it cannot be pickled."""
        return _Packed(call, self._worker.pack(*call))

    def submit(self, packed: _Packed, timeout: float | None) -> None:
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
            WorkerError: The process hangs or died repeatedly.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                result = self._receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
                break
            except ChannelClosed:
                self._restart(timeout)
        call = self._calls.popleft().call
        self._send_next(timeout)
        self._deaths = 0
        value = result.get()
        self._remember(call, value)
        return value

    def waitable(self) -> Worker:
        """Return the worker, which becomes readable when a result is available or the worker dies."""
        return self._worker

    def close(self) -> None:
        """Stop the process; kill it if it is busy. Idempotent."""
        self._worker.close()

    def _start(self) -> Worker:
        return WorkerProcess(make_handler, self._spec, name=f"vlmgym {self._environments()}")

    def _send_next(self, timeout: float | None) -> None:
        # If the worker died, `result` restarts it and sends the call again.
        with contextlib.suppress(ChannelClosed):
            if self._calls:
                self._send(self._calls[0].message, timeout)

    def _send(self, message: bytes, timeout: float | None) -> None:
        try:
            self._worker.send(message, timeout)
        except TimeoutError:
            raise self._timed_out() from None

    def _receive(self, timeout: float | None) -> Result:
        try:
            return self._worker.receive(timeout)
        except TimeoutError:
            raise self._timed_out() from None

    def _restart(self, timeout: float | None) -> None:
        status, self._deaths = self._worker.exit_status(), self._deaths + 1
        if self._deaths > RESTARTS:
            raise WorkerError(
                f"{self._name()} died {self._deaths} times during the same call, last with {status}; if it ran out of "
                'memory, use fewer environments; scripts need `if __name__ == "__main__":` around their main part'
            )
        if any(checkpoint is not None for checkpoint in self._checkpoints):
            message = f"{self._name()} died ({status}); a new one resumes from the last checkpoints"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self._worker.close()
        self._worker = self._start()
        actions: list[list[Any]] = [[] for _ in self._saved]
        for step in self._steps:
            for i, action in zip(step.ids, step.actions, strict=True):
                if step.number > self._saved[i]:
                    actions[i].append(action)
        restore: Call = ("restore", (self._checkpoints, actions))
        try:
            self._send(self._worker.pack(*restore), timeout)
            reply = self._receive(timeout).get()
        except ChannelClosed:
            return self._restart(timeout)
        self._remember(restore, reply)
        return self._send_next(timeout)

    def _timed_out(self) -> WorkerError:
        """Stop the hanging process and return the error to raise."""
        error = WorkerError(f"{self._name()} timed out")
        self.close()
        return error

    def _remember(self, call: Call, value: Any) -> None:
        """Store new checkpoints, and the steps taken since the oldest checkpoint."""
        if not isinstance(value, StepReply):
            return
        name, args = call
        self._number += 1
        if name == "step":
            self._steps.append(_Step(self._number, *args))
            self._kept += len(args[0])
            while self._kept > (CHECKPOINT_INTERVAL + 1) * len(self._saved):
                self._kept -= len(self._steps.popleft().ids)  # the environments of this step have newer checkpoints
        for i, checkpoint in value.checkpoints.items():
            self._checkpoints[i], self._saved[i] = checkpoint, self._number

    def _name(self) -> str:
        return f"{self._worker.name} ({self._environments()})"

    def _environments(self) -> str:
        return f"environments {self.part.start} to {self.part.stop - 1}"


def make_handler(spec: WorkerSpec) -> Callable[[str, tuple[Any, ...]], Any]:
    """Create the environments in a worker process; return the function that handles calls."""
    return EnvWorker(spec).handle
