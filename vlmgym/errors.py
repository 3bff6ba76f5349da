"""What can go wrong, by whose doing. Every message is one sentence a user can act on."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError


class VlmgymError(Exception):
    """Base of all errors of vlmgym; the command line prints the message and exits with `exit_code`."""

    exit_code = 1


class UsageError(VlmgymError):
    """An option, a configuration or a file given by the user is not acceptable (exit code 2)."""

    exit_code = 2


class StateError(UsageError):
    """A text is not the JSON of a position of this game with this configuration."""


class PolicyError(VlmgymError):
    """A policy raised, hung, or returned something else than one response for each prompt: the run ends."""


class InfrastructureError(VlmgymError):
    """A model could not be asked, and trying again did not help: the episode ends as an error, which is no score."""


class WorkerError(VlmgymError):
    """A worker process died or did not answer."""


class GenerationError(VlmgymError):
    """A generator could not meet its constraints; they are never relaxed to get a sample."""


class EpisodeEnded(VlmgymError):
    """A move was asked for in an episode that has ended."""


class DisplayError(VlmgymError):
    """There is no screen to open a window on."""


class ParseError(VlmgymError):
    """A response holds no action: the outcome is `unparsable`, and the message says what was wrong."""


class IllegalAction(VlmgymError):
    """An action is out of range or against the rules: the outcome is `illegal`, and the message says why."""


def one_line(text: str) -> str:
    """A text for a terminal: in one line, without control characters and lone surrogates."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def short_repr(value: object) -> str:
    """A value as Python writes it, in one short line."""
    return truncate(one_line(repr(value)), 60)


def truncate(text: str, longest: int) -> str:
    """The text, or what of it fits into so many characters, with three dots at the end."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def missing_extra(who: str, library: str, extra: str) -> UsageError:
    """What to raise when a library of an extra is not installed.

    Args:
        who: What needs it.
        library: What is missing.
        extra: The name in pyproject.toml.
    """
    return UsageError(f"{who} needs {library}: run pip install -e '.[{extra}]' in the folder of vlmgym")


def describe_validation_error(error: ValidationError) -> str:
    """The first problem pydantic found, as `field: what was wrong (got value)`."""
    first: Any = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "value_error":
        return f"{where}: {message}" if where else message
    got = short_repr(first["input"])
    return f"{where}: {message} (got {got})" if where else f"{message} (got {got})"
