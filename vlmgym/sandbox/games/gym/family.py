"""Action names, prompt texts and settings for Gymnasium environments, from one TOML file per family."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module, resources
from importlib.metadata import entry_points

from pydantic import BaseModel, ConfigDict, ValidationError

from vlmgym.errors import UsageError, describe_validation_error, first_line
from vlmgym.sandbox.games.gym.truths import TRUTHS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENTRY_POINT_GROUP = "vlmgym.gym_families"
"""Entry point group of packages that contain a file `vlmgym.toml`; an entry is `name = "package"`."""


class Words(BaseModel):
    """Texts and settings of the environments whose ids match one of the patterns `ids`, such as `MiniGrid-*`.

    Attributes:
        actions: Names of the values of each action dimension; by default the environment's own names, if any, else
            numbers.
        rules: Rules for the prompt; `{name}` inserts an environment attribute listed in `attributes`, and `{env}`
            inserts the name of the environment.
        attributes: Attributes of the unwrapped environment that `rules` inserts.
        truth: Name of the function in `truths` that describes the image.
        perception: What a response's `<perception>` contains.
        keys: Maps keys to the names of the actions that they play in `vlmgym play`.
        invalid: Reward for an invalid response. It should be at most the lowest reward of a step, so that not answering
            does not pay; this is not checked.
        noop: Index of the action that is played after an invalid response; if None, no action is played.
        success: Whether to report the metric `success`: 1 for episodes with a positive total reward, else 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[str, ...] = ()
    actions: tuple[tuple[str, ...], ...] = ()
    rules: str = "The image shows the environment {env}. Choose the actions that earn the most reward."
    attributes: tuple[str, ...] = ()
    truth: str | None = None
    perception: str = "what the image shows"
    keys: Mapping[str, str] = {}
    invalid: float = 0.0
    noop: int | None = None
    success: bool = False

    def model_post_init(self, context: object) -> None:
        if self.truth is not None and self.truth not in TRUTHS:
            raise ValueError(f"truth must be one of {', '.join(TRUTHS)}, got {self.truth!r}")


class Family(BaseModel):
    """A family of environments.

    Attributes:
        module: Module whose import registers the environments; None if Gymnasium registers them.
        install: How to install the module.
        envs: Texts and settings; each entry applies to the environment ids that match its patterns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str | None = None
    install: str = ""
    envs: tuple[Words, ...]


def find_words(env_id: str) -> tuple[Family | None, Words]:
    """Return an environment's family and its `Words`, or None and the default `Words` if it has no family."""
    for family in _families():
        for words in family.envs:
            if any(fnmatchcase(env_id, pattern) for pattern in words.ids):
                return family, words
    return None, Words()


def import_module_of(family: Family, env_id: str) -> None:
    """Import the module that registers the environments of a family, or raise `UsageError`."""
    if family.module is None:
        return
    try:
        import_module(family.module)
    except ImportError as error:
        advice = f": {family.install}" if family.install else ""
        raise UsageError(f"{env_id} needs the package {family.module} ({first_line(error)}){advice}") from None


@cache
def _families() -> tuple[Family, ...]:
    """Read the files in the folder `families` and in installed packages."""
    return tuple(read_family(where, text) for where, text in _files())


def read_family(where: str, text: str) -> Family:
    """Parse the TOML file of a family, or raise `UsageError`."""
    try:
        return Family.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: {error}") from None
    except ValidationError as error:
        raise UsageError(f"{where}: {describe_validation_error(error)}") from None


def _files() -> Iterator[tuple[str, str]]:
    folder = resources.files(__package__) / "families"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        yield file.name, file.read_text(encoding="utf-8")
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            yield f"vlmgym.toml of {point.value}", (resources.files(point.value) / "vlmgym.toml").read_text("utf-8")
        except (ImportError, OSError) as error:
            raise UsageError(f"cannot read vlmgym.toml of the package {point.value}: {first_line(error)}") from None
