"""Calls to workers and their results, as messages.

An error that a call raises carries its remote traceback, and keeps its type if it can be pickled.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from vlmgym.errors import UsageError, WorkerError

Handler = Callable[..., Any]
"""Function that handles calls in a worker; it receives the arguments of a call as positional arguments."""


class Result(NamedTuple):
    """Return value of a call, or the error that it raised."""

    value: Any
    error: Exception | None

    def get(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class RemoteTraceback(Exception):
    """Cause of an error that was raised in a worker: its traceback as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def handle(handler: Handler, message: bytes | bytearray, pack: Callable[[Any], bytes]) -> bytes:
    """Handle one call in a worker.

    Args:
        handler: Function to call.
        message: Pickle of its arguments.
        pack: Function that pickles the response.

    Returns:
        The packed response.
    """
    try:
        args = pickle.loads(message)
    except Exception as error:  # `__main__` lacks a notebook's class, or a user's `__setstate__` raises anything
        return pack((None, unsendable(error), traceback.format_exc()))
    try:
        value = handler(*args)
    except Exception as error:
        return _pack_error(error, pack)
    try:
        return pack((value, None, ""))
    except Exception as error:
        return pack((None, UsageError(f"a worker cannot return its result: {_describe(error)}"), ""))


def read_result(response: bytes | bytearray, buffers: Iterable[Any] = ()) -> Result:
    """Unpickle the response to a call; `buffers` are its out-of-band buffers (PEP 574)."""
    try:
        value, error, trace = pickle.loads(response, buffers=buffers)
    except Exception as failure:
        return Result(None, WorkerError(f"cannot read the result of a worker: {_describe(failure)}"))
    if error is not None and trace:
        error.__cause__ = RemoteTraceback(trace)
    return Result(value, error)


def unsendable(error: Exception) -> UsageError:
    """Return the error for a call that cannot be pickled, or cannot be unpickled in the worker."""
    advice = "define its class or function in a module, or use no worker processes"
    return UsageError(f"cannot send an object to a worker ({_describe(error)}): {advice}")


def _pack_error(error: Exception, pack: Callable[[Any], bytes]) -> bytes:
    trace = traceback.format_exc()
    if not isinstance(error, StopIteration):  # futures reject it
        with contextlib.suppress(Exception):  # the error itself may not be picklable
            pickle.loads(pickle.dumps(error))
            return pack((None, error, trace))
    return pack((None, WorkerError(f"a worker raised {_describe(error)}"), trace))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
