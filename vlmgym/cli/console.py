"""Parse command lines and report errors in one line."""

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
"""Error codes of a full or failing disk."""
INTERRUPTED = 130
"""Conventional exit code after Ctrl-C."""


PATHS = tyro.constructors.ConstructorRegistry()
"""Parser of path options; rejects an empty path, which would mean the current folder."""


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
        raise UsageError("a path must not be empty; use . for the current folder")
    return Path(words[0])


def parse_options(config: type[T], args: Sequence[str] | None, prog: str, description: str | None = None) -> T:
    """Parse a command line, by default `sys.argv`; invalid options exit with code 2 and a message."""
    return tyro.cli(config, args=args, prog=prog, description=description)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Report expected errors in one line on standard error and exit with their exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell; other libraries expect a stream
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process exits
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal may lack a character
    ended_by: Sequence[int] = ()
    try:
        with interruptible() as ended_by, PATHS:
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
        if error.errno not in FULL or error.filename is not None:  # errors of files have a name
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


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
