"""Errors raised by vlmgym. Each message is one sentence that a user can act on."""

from __future__ import annotations

import difflib
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pydantic import ValidationError


class VlmgymError(Exception):
    """Base class of all errors; the command line prints the message and exits with `exit_code`."""

    exit_code = 1


class UsageError(VlmgymError):
    """An option, a config or a file given by the user is invalid (exit code 2)."""

    exit_code = 2


class StateError(UsageError):
    """A snapshot or a state is invalid, or does not fit the game and its config."""


class PolicyError(VlmgymError):
    """A policy failed, timed out, or did not return one response per prompt; the run ends."""


class EpisodeError(VlmgymError):
    """An episode cannot continue: it ends as an error, without a score, and others go on. A resumed run retries it."""


class InfrastructureError(EpisodeError):
    """A request to a model failed after all retries."""


class GameError(EpisodeError):
    """A game raised an exception that is not an outcome; the message names game, seed and turn."""


class WorkerError(VlmgymError):
    """A worker process died or timed out, or code in it raised an unexpected error."""


class GenerationError(VlmgymError):
    """A generator could not satisfy its constraints, which are never relaxed."""


class EpisodeEnded(VlmgymError):
    """An action was sent to an ended episode."""


class DisplayError(VlmgymError):
    """There is no display on which to open a window."""


class ParseError(VlmgymError):
    """A response has no valid action; its outcome is `unparsable`."""


class IllegalAction(VlmgymError):
    """An action is out of range or against the rules; its outcome is `illegal`."""


def one_line(text: str) -> str:
    """Return text as one line, without control characters or lone surrogates."""
    printable = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def describe_exception(error: BaseException, own_paths: tuple[str, ...] = ()) -> str:
    """Describe an exception of a user's code in one line: type, message, and the file and line that raised it.

    Frames in files whose paths begin with one of `own_paths` are not named.
    """
    message = one_line(describe_validation_error(error) if isinstance(error, ValidationError) else str(error))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(own_paths) and "importlib" not in frame.filename
    ]
    location = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{location}"


def short_repr(value: object) -> str:
    """Return the `repr` of a value as one short line."""
    return truncate(one_line(repr(value)), 60)


def truncate(text: str, max_length: int) -> str:
    """Truncate text to `max_length` characters; truncated text ends in an ellipsis."""
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def did_you_mean(name: str, accepted: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the accepted name that is most similar to an unknown one, or nothing."""
    names = {other.lower(): other for other in accepted}
    similar = difflib.get_close_matches(name.lower(), names, 1)
    return f" (did you mean {names[similar[0]]}?)" if similar else ""


def pip_install(requirement: str) -> str:
    """Return the command that installs a requirement for the running interpreter."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(requirement)}"


def missing_extra(feature: str, library: str, extra: str) -> UsageError:
    """Return the error for a feature that needs a missing library; `extra` is the extra that installs it."""
    return UsageError(f"{feature} needs {library}: run {pip_install(f'vlmgym[{extra}]')}")


@contextmanager
def importing(feature: str, extra: str) -> Iterator[None]:
    """Raise a `UsageError` if a library imported in this context is missing or has an incompatible version."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(feature, error.name or first_line(error), extra) from None
    except ImportError as error:
        install = pip_install(f"vlmgym[{extra}]")
        raise UsageError(f"{feature} cannot import its libraries ({first_line(error)}): run {install}") from None


def describe_validation_error(error: ValidationError) -> str:
    """Describe the first unknown field of a pydantic error, else the first problem, as `field: message (got value)`."""
    problems = error.errors(include_url=False)
    problem = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    field = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if problem["type"] not in ("value_error", "missing", "extra_forbidden"):  # unknown fields may hold secrets
        message = f"{message} (got {short_repr(problem['input'])})"
    return f"{field}: {message}" if field else message
