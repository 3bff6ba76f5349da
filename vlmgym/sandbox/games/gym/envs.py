"""Gymnasium environments: configuration, texts and settings by family, making, and a test of determinism."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import import_module, resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import gymnasium
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import StickyAction
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from vlmgym.checks import read_toml
from vlmgym.errors import UsageError, VlmgymError, describe_validation_error, first_line, missing_extra
from vlmgym.sandbox.core.config import LIST, DegradedConfig, GameConfig, parse_config_fields, setting
from vlmgym.sandbox.core.game import NOT_DESCRIBED


class GymConfig(DegradedConfig):
    """Configuration of an environment. There are no reasoning levels: choose another environment or other options."""

    env: str = setting("FrozenLake-v1", "Id of the environment, set by the game id.")
    options: Annotated[tuple[str, ...], LIST] = setting((), "Arguments of gymnasium.make: NAME=VALUE, comma-separated.")
    frame_skip: int = setting(1, "Number of times that each action is repeated.", ge=1, le=1000)
    frames: int = setting(1, "Number of most recent frames that each turn shows.", ge=1, le=16)
    sticky: float = setting(
        0.0, "Probability that the environment repeats the last action instead of the chosen one.", ge=0.0, lt=1.0
    )
    box_values: int = setting(5, "Number of evenly spaced values of each dimension of a Box.", ge=2, le=101)
    actions: tuple[tuple[str, ...], ...] = setting(
        (), "Names of the actions, comma-separated; dimensions are separated by semicolons."
    )
    rules: str | None = setting(None, "Rules in the prompt, replacing those of the family.", max_length=20_000)
    invalid: float | None = setting(
        None, "Reward of an invalid response, replacing that of the family; at most the lowest reward of a step."
    )
    running: int = setting(
        128,
        "Maximum number of environments kept running per process; not stored in records.",
        ge=1,
        le=65536,
        exclude=True,
    )

    @classmethod
    def at(cls, /, perception: int = 3, reasoning: int = 3, **overrides: Any) -> GameConfig:
        if reasoning != 3:
            raise UsageError(
                "environments have no reasoning levels: leave reasoning at 3, and choose another environment or options"
            )
        return super().at(perception, reasoning, **overrides)

    @field_validator("actions", mode="before")
    @classmethod
    def _split_actions(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(tuple(names.split(",")) for names in value.split(";"))
        return tuple(map(tuple, value)) if isinstance(value, list) else value


# Families -------------------------------------------------------------------------------------------------------------
#
# Action names, prompt texts and settings for Gymnasium environments, from one TOML file per family.

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
        extra: Extra of vlmgym that installs the module.
        install: How to install a module that no extra installs.
        envs: Texts and settings; each entry applies to the environment ids that match its patterns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    module: str | None = None
    extra: str | None = None
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
        if family.extra is not None:
            raise missing_extra(env_id, family.module, family.extra) from None
        advice = f": {family.install}" if family.install else ""
        raise UsageError(f"{env_id} needs the package {family.module} ({first_line(error)}){advice}") from None


@cache
def _families() -> tuple[Family, ...]:
    """Read the files in the folder `families` and in installed packages."""
    files = sorted(Path(__file__).with_name("families").iterdir())
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            files.append(Path(str(resources.files(point.value))) / "vlmgym.toml")
        except ImportError as error:
            raise UsageError(f"cannot import {point.value}, which has environments: {first_line(error)}") from None
    return tuple(map(_read_family, files))


def _read_family(path: Path) -> Family:
    try:
        return Family.model_validate(read_toml(path))
    except ValidationError as error:
        raise UsageError(f"{path}: {describe_validation_error(error)}") from None


# Descriptions ---------------------------------------------------------------------------------------------------------
#
# Text descriptions of environment images, derived from the environment's state.

FROZEN_LAKE = {"S": "start", "F": "ice", "H": "hole", "G": "goal"}
DIRECTIONS = ("right", "down", "left", "up")
"""Directions of MiniGrid's agent, by index."""
PLACES = ("red", "green", "yellow", "blue", "in the taxi")
"""Locations of Taxi's passenger, by index."""


def frozen_lake(env: Any) -> str:
    """One line per row; the elf's cell is `elf`, or `fallen` in a hole."""
    rows = [[FROZEN_LAKE[cell.decode()] for cell in row] for row in env.desc.tolist()]
    row, column = divmod(int(env.s), env.ncol)
    rows[row][column] = "fallen" if rows[row][column] == "hole" else "elf"
    return _grid(rows)


def cliff_walking(env: Any) -> str:
    """One line per row; the elf's cell is `elf`."""
    height, width = env.shape
    rows = [["cliff" if env._cliff[row, column] else "ground" for column in range(width)] for row in range(height)]
    rows[-1][-1] = "goal"
    row, column = divmod(int(env.s), width)
    rows[row][column] = "elf"
    return _grid(rows)


def taxi(env: Any) -> str:
    """Row and column of the taxi, location of the passenger, and destination."""
    row, column, passenger, destination = env.decode(int(env.s))
    return f"taxi, {row}, {column}\npassenger, {PLACES[passenger]}\ndestination, {PLACES[destination]}"


def blackjack(env: Any) -> str:
    """The player's sum, the dealer's card, and whether the player has a usable ace."""
    total, dealer, ace = env._get_obs()
    return f"player, {total}\ndealer, {dealer}\nusable ace, {'yes' if ace else 'no'}"


def minigrid(env: Any) -> str:
    """One line per row of the whole grid; `NOT_DESCRIBED` if the image shows only the agent's view."""
    if env.agent_pov:
        return NOT_DESCRIBED
    rows = [[_minigrid_cell(env, column, row) for column in range(env.width)] for row in range(env.height)]
    return _grid(rows)


def _minigrid_cell(env: Any, column: int, row: int) -> str:
    if (column, row) == tuple(env.agent_pos):
        return f"agent facing {DIRECTIONS[env.agent_dir]}"
    thing = env.grid.get(column, row)
    if thing is None:
        return "empty"
    if thing.type in ("wall", "goal", "lava"):
        return str(thing.type)
    if thing.type == "door":
        state = "open" if thing.is_open else "locked" if thing.is_locked else "closed"
        return f"{thing.color} {state} door"
    return f"{thing.color} {thing.type}"


def attribute_words(value: Any) -> str:
    """Format an attribute of an environment for the rules, such as the object that MiniGrid's agent carries."""
    if value is None:
        return "nothing"
    return f"{value.color} {value.type}" if hasattr(value, "color") and hasattr(value, "type") else str(value)


def _grid(rows: list[list[str]]) -> str:
    return "\n".join(", ".join(row) for row in rows)


TRUTHS: Mapping[str, Callable[[Any], str]] = {
    "frozen_lake": frozen_lake,
    "cliff_walking": cliff_walking,
    "taxi": taxi,
    "blackjack": blackjack,
    "minigrid": minigrid,
}
"""Functions that describe an unwrapped environment's image, keyed by the value of `truth` in a family's file."""


# Making ---------------------------------------------------------------------------------------------------------------
#
# Make Gymnasium environments from a configuration, and report each failure in one sentence.

Env = gymnasium.Env[Any, Any]

MODE = "rgb_array"

# Environments initialise all of pygame; without sound hardware, ALSA would print pages of errors.
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


def check_id(env_id: str) -> None:
    """Check an environment id from a command line or a record.

    For `module:Env-v0`, Gymnasium would import the module; a record from someone else must not cause that.

    Raises:
        UsageError: The id names a module to import, has no version, or is not registered by a known package.
    """
    if ":" in env_id:
        raise UsageError(
            f"{env_id!r} names a module to import, which vlmgym does not do: import it in your program, or let its "
            "package name its environments as in docs/gymnasium.md"
        )
    if env_id not in gymnasium.registry and (family := find_words(env_id)[0]) is not None:
        import_module_of(family, env_id)
    if env_id in gymnasium.registry:
        return
    versions = [known for known in gymnasium.registry if known.startswith(f"{env_id}-v")]
    if versions:
        raise UsageError(f"{env_id!r} has no version: choose {' or '.join(versions)}")
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        raise UsageError(f"Gymnasium has no environment {env_id!r}: {first_line(error)}") from None


def make_env(env_id: str, options: tuple[str, ...], sticky: float) -> Env:
    """Make an environment.

    Args:
        env_id: Id of a registered environment.
        options: Arguments of `gymnasium.make`, each as NAME=VALUE.
        sticky: Probability that the last action is repeated instead of the chosen one.

    Raises:
        UsageError: The environment cannot be made, or has no `rgb_array` rendering.
    """
    check_id(env_id)
    arguments = parse_config_fields(options)
    if taken := {"id", "render_mode", "disable_env_checker"} & arguments.keys():
        raise UsageError(f"options cannot set {min(taken)}")
    try:
        env: Env = gymnasium.make(env_id, render_mode=MODE, disable_env_checker=True, **arguments)
    except VlmgymError:
        raise
    except Exception as error:  # the environment's own code may raise anything
        raise UsageError(f"{env_id} cannot be made: {type(error).__name__}: {first_line(error)}") from None
    if MODE not in env.metadata.get("render_modes", ()):
        raise UsageError(f"{env_id} has no {MODE} rendering")
    return StickyAction(env, sticky) if sticky else env


def meanings_of(env: Env) -> list[str] | None:
    """Return the environment's own names for its actions, which Atari games have; None if it has none."""
    method = getattr(env.unwrapped, "get_action_meanings", None)
    return None if method is None else list(map(str, method()))


# Determinism ----------------------------------------------------------------------------------------------------------
#
# Test whether an environment is deterministic, that is, the same seed and actions give the same results.

STEPS = 40
"""Number of steps over which two environments are compared."""


@lru_cache(maxsize=256)
def is_deterministic(env_id: str, options: tuple[str, ...], sticky: float) -> bool:
    """Return whether a new and a used environment give the same results for the same seed and actions."""
    used, new = make_env(env_id, options, sticky), make_env(env_id, options, sticky)
    if used.spec is not None and used.spec.nondeterministic:
        return False
    for _ in _play(used, 1):
        pass
    return all(data_equivalence(result, other_result) for result, other_result in zip(_play(used, 0), _play(new, 0)))


def _play(env: Env, seed: int) -> Iterator[Any]:
    """Play up to `STEPS` random actions in one episode; yield the results of the reset and of each step."""
    env.action_space.seed(seed)
    yield env.reset(seed=seed)[0]
    for _ in range(STEPS):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = bool(terminated or truncated)
        yield observation, float(reward), ended
        if ended:
            return
