"""What every command does alike: read its options from a typed dataclass, and end errors in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import tyro

from vlmgym.errors import VlmgymError

T = TypeVar("T")

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def parse_options(config: type[T], args: Sequence[str] | None, prog: str) -> T:
    """Options from a command line; wrong ones end the program with exit code 2 and a message."""
    return tyro.cli(config, args=args, prog=prog)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the program with one sentence on standard error, and the error's exit code, where an error is expected."""
    try:
        yield
    except VlmgymError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt as error:
        print(f"\n{error or 'interrupted'}", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
