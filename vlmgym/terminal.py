"""Command lines, interrupts, error reports, consoles and progress bars."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import tyro
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from vlmgym.errors import UsageError, VlmgymError

T = TypeVar("T")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Error codes of a full or failing disk."""
INTERRUPTED = 130
"""Conventional exit code after Ctrl-C."""
PROGRESS_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=24),  # fits in 80 columns with the longest counts
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)


OPTIONS = tyro.constructors.ConstructorRegistry()
"""Parsers for options with a single value. Errors say what is accepted; an empty path is rejected."""


@OPTIONS.primitive_rule
def _value_rule(option: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    is_union = get_origin(option.type) in (Union, UnionType)
    kinds: list[Any] = [kind for kind in get_args(option.type) if kind is not NoneType] if is_union else [option.type]
    kind = getattr(kinds[0], "__origin__", kinds[0])  # without the constraints in Annotated
    if len(kinds) != 1 or kind not in KINDS:
        return None
    types = (kind, *([int] if kind is float else []), *([NoneType] if is_union else []))
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH" if kind is Path else kind.__name__.upper(),
        instance_from_str=lambda words: None if is_union and words == ["None"] else _parse(kind, words[0]),
        is_instance=lambda value: isinstance(value, types),
        str_from_instance=lambda value: [str(value)],
    )


KINDS: dict[type, str] = {int: "an integer", float: "a number", str: "text", Path: "a path"}


def _parse(kind: type, word: str) -> Any:
    if kind is Path and not word:
        raise UsageError("a path must not be empty; for the current folder, write .")  # also inside tuples
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"expected {KINDS[kind]}, got {word!r}") from None


def parse_options(config: type[T], args: Sequence[str] | None, prog: str, description: str | None = None) -> T:
    """Parse a command line, by default `sys.argv`; invalid options exit with code 2 and a message."""
    return tyro.cli(config, args=args, prog=prog, description=description)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a preempted job and a closed terminal."""


class InterruptHandler:
    """A signal handler that records the signals and raises `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record the signal and raise."""
        self.received.append(number)
        raise KeyboardInterrupt


def check_interrupts() -> None:
    """Raise `KeyboardInterrupt` if a signal has been received; for loops that may run for hours.

    Python discards exceptions raised in finalizers and callbacks of weak references, which torch has many of.
    """
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, InterruptHandler) and handler.received:
        raise KeyboardInterrupt


@contextmanager
def defer_interrupts(cancel: Callable[[], None]) -> Iterator[list[int]]:
    """Call `cancel` on the first interrupt, and raise `KeyboardInterrupt` at the end of the block.

    If `KeyboardInterrupt` were raised inside an asyncio task, the task would stay unfinished and a traceback would be
    logged. A second Ctrl-C raises it immediately.

    Yields:
        The signals received so far, in order.
    """
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        received.append(number)
        if len(received) == 1:
            cancel()

    def replaceable(handler: object) -> bool:  # the handlers of other programs stay
        return handler is signal.default_int_handler or isinstance(handler, InterruptHandler)

    try:
        with _handling(defer, replaceable):
            yield received
    finally:
        if received:
            signal.raise_signal(received[0])


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], replaceable: Callable[[Any], bool]) -> Iterator[None]:
    """Handle those of `SIGNALS` whose present handler is replaceable; only the main thread can handle signals."""
    before = {number: signal.getsignal(number) for number in SIGNALS if replaceable(signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Report expected errors in one line on standard error and exit with their exit code.

    Each of `SIGNALS` raises `KeyboardInterrupt`, except ignored ones, as nohup requires.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell; other libraries expect a stream
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process exits
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal may lack a character
    if os.environ.get("COLUMNS") == "0":  # unknown; Rich would print nothing
        del os.environ["COLUMNS"]
    os.environ.pop("MPLBACKEND", None)  # Matplotlib cannot be imported if it is unknown; commands open no window
    interrupt = InterruptHandler()
    try:
        with _handling(interrupt, lambda present: present in (signal.SIG_DFL, signal.default_int_handler)), OPTIONS:
            try:
                yield
            except SystemExit:
                sys.stdout.flush()
                raise
            sys.stdout.flush()  # so that errors are raised here and not at exit
    except BrokenPipeError:
        _write_no_more()  # the reader of the pipe is gone
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:  # errors about files have a filename
            raise
        _write_no_more()
        print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None
    except VlmgymError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise  # Python 3.11 wraps an interrupt in __set_name__, while a module is imported
        print(f"\n{str(error) or 'interrupted'}", file=sys.stderr)
        raise SystemExit(128 + interrupt.received[0] if interrupt.received else INTERRUPTED) from None


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_console(stderr: bool = False) -> Console:
    """Create a console that prints text verbatim, because paths and messages may look like markup."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


class ProgressWithStatus(Progress):
    """A progress bar with a status line below it."""

    facts = ""

    def __init__(self, console: Console) -> None:
        super().__init__(*PROGRESS_COLUMNS, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar, then the status line."""
        yield from super().get_renderables()
        if self.facts:
            yield Text(self.facts)
