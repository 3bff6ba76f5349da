"""Data parallelism: processes with identical trainers that split the states of each step and sum their gradients."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import wraps
from itertools import chain
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

import torch
from torch import distributed
from torch.nn.utils import parameters_to_vector

from vlmgym.errors import WorkerError
from vlmgym.training.algorithm import TrainingError
from vlmgym.workers.process import ChannelClosed, WorkerProcess, receive_value

P = ParamSpec("P")
T = TypeVar("T")
JOIN_TIMEOUT = timedelta(minutes=5)
"""Timeout for connecting all processes. If one dies while connecting, this is noticed only at the timeout."""
LONGEST_WAIT = timedelta(days=7)
"""Timeout for waiting on a connected process, which may be busy with an evaluation. If it dies, the others notice
immediately."""


class LostProcessError(TrainingError):
    """Another process of the run ended."""


class Processes:
    """All processes of a training run, as seen from the one with `rank`. By default, there is only one process.

    With `in_all_processes`, the first process calls a trainer method in the other processes while it runs the same
    method itself. Within such a call, all processes exchange results in the same order (`gather`, `sum_gradients`), so
    that their weights stay equal.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self._workers: list[WorkerProcess] = []

    @contextmanager
    def running(self, make_trainer: Callable[..., Any]) -> Iterator[None]:
        """Run the other processes while the block runs.

        Each of them calls `make_trainer`, which must be picklable and accept the argument `processes`.
        """
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory())
            stack.callback(self._workers.clear)
            for rank in range(1, self.size):
                self._workers.append(WorkerProcess(_make_handler, make_trainer, Processes(rank, self.size)))
                stack.callback(self._workers[-1].close)
            with self.calling("start"):
                pass
            stack.callback(self.leave)
            with self.calling("join", f"file://{folder}/store"):
                self.join(f"file://{folder}/store")
            yield

    @contextmanager
    def calling(self, method: str, *args: Any) -> Iterator[None]:
        """Call a trainer method in the other processes while the block runs it in this one.

        Raises:
            TrainingError: Another process died, or its trainer raised this error.
        """
        for worker in self._workers:
            with suppress(ChannelClosed):  # if it died, `_receive` reports it
                worker.send(worker.pack(method, *args))
        try:
            yield
        except BaseException as error:
            self.leave()  # so that all others notice, and no later call receives this call's results
            if isinstance(error, LostProcessError):
                for worker in self._workers:
                    with suppress(LostProcessError):  # this worker only noticed that another one ended
                        _receive(worker)
            raise
        for worker in self._workers:
            _receive(worker)

    def join(self, store: str) -> None:
        """Connect this process to all others through a file, given as the URL `store`."""
        if self.size > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
            try:
                distributed.init_process_group("gloo", store, JOIN_TIMEOUT, world_size=self.size, rank=self.rank)
            except RuntimeError as error:
                raise LostProcessError("another process of the run did not connect") from error
            distributed.distributed_c10d._set_pg_timeout(LONGEST_WAIT)

    def leave(self) -> None:
        """Disconnect this process, so that the others stop waiting for it."""
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's share of items that all processes have."""
        return items[len(items) * self.rank // self.size : len(items) * (self.rank + 1) // self.size]

    def gather(self, items: list[T]) -> list[T]:
        """Return the concatenated items of all processes."""
        if self.size == 1:
            return items
        parts: list[Any] = [None] * self.size
        with _noticing_losses():
            distributed.all_gather_object(parts, items)
        return list(chain.from_iterable(parts))

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum the gradients over all processes; a gradient that is None in every process stays None."""
        if self.size > 1:
            counts = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
            gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in parameters]
            sums = parameters_to_vector([*gradients, counts])
            with _noticing_losses():
                distributed.all_reduce(sums)
            *gradients, counts = sums.split([tensor.numel() for tensor in (*parameters, counts)])
            for parameter, gradient, count in zip(parameters, gradients, counts.tolist()):
                parameter.grad = gradient.view_as(parameter) if count else None


ALONE = Processes()


def in_all_processes(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a trainer's method: if the first process calls it, it runs in all of them.

    Keyword arguments stay in the first process, the others use their defaults.
    """

    @wraps(method)
    def run(*args: P.args, **options: P.kwargs) -> T:
        trainer: Any = args[0]
        with trainer.processes.calling(method.__name__, *args[1:]):
            return method(*args, **options)

    return run


@contextmanager
def _noticing_losses() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if "gloo/transport" not in str(error):  # another error, such as running out of memory
            raise
        raise LostProcessError("another process of the run ended") from error


def _receive(worker: WorkerProcess) -> None:
    try:
        receive_value(worker)
    except WorkerError as error:
        hint = 'if memory is full, lower --processes; scripts must train under `if __name__ == "__main__":`'
        raise TrainingError(f"{error}; {hint}") from error


def _make_handler(make_trainer: Callable[..., Any], processes: Processes) -> Callable[..., None]:
    trainer: Any = None

    def handle(method: str, *args: Any) -> None:
        nonlocal trainer
        try:
            if method == "start":
                trainer = make_trainer(processes=processes)
            else:
                getattr(processes if method == "join" else trainer, method)(*args)
        except Exception:
            processes.leave()
            raise

    return handle
