"""What every command does alike: options of a game, reading them from a command line, ending errors in one sentence."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import tyro

from vlmgym.errors import UsageError, VlmgymError
from vlmgym.interrupts import interruptible

T = TypeVar("T")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the system says of a disk that takes no more."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


PATHS = tyro.constructors.ConstructorRegistry()
"""Reads options that are paths: an empty one, which would be the current folder, is refused."""


@PATHS.primitive_rule
def _path_rule(
    option: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Path] | None:
    if option.type is not Path:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=_path,
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    )


def _path(words: list[str]) -> Path:
    if not words[0]:
        raise UsageError("a path is empty: name a file or a folder; the current folder is .")
    return Path(words[0])


def parse_options(config: type[T], args: Sequence[str] | None, prog: str, description: str | None = None) -> T:
    """Options from a command line; wrong ones end the program with exit code 2 and a message.

    Args:
        config: Their type.
        args: The command line.
        prog: The program's name.
        description: What help begins with; None: the type's docstring.
    """
    return tyro.cli(config, args=args, prog=prog, description=description)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the program with one sentence on standard error, and the error's exit code, where an error is expected."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign is no reason to fail
    ended_by: Sequence[int] = ()
    try:
        with interruptible() as ended_by, _written_out(), PATHS:
            yield
    except BrokenPipeError:
        _write_no_more()  # who read the output has left
        raise SystemExit(1) from None
    except OSError as error:
        if sys.stdout is None or error.errno not in FULL or error.filename is not None:  # files are named
            raise
        _write_no_more()
        print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None
    except VlmgymError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt as error:
        print(f"\n{str(error) or 'interrupted'}", file=sys.stderr)
        raise SystemExit(128 + ended_by[0] if ended_by else INTERRUPTED) from None


@contextmanager
def _written_out() -> Iterator[None]:
    """Raise what is wrong with standard output now, not when the program has ended."""
    try:
        yield
    except SystemExit:
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.stdout is not None:  # it is closed where there is none
        sys.stdout.flush()


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
