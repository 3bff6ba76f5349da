"""The contract of a game: rules, image, words.

A game object holds configuration only. A position is a separate, immutable, JSON-serialisable state, and every method
is a pure function of its arguments; all chance comes from the `numpy.random.Generator` handed in.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from vlmgym.errors import StateError, UsageError, describe_validation_error, short_repr
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.answer_text import plain, unwrap
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.core.perception import Perception, compare_grids
from vlmgym.sandbox.core.spaces import ImageSpace

StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")
ImageArray = NDArray[np.uint8]
"""An RGB image, uint8, shape (height, width, 3)."""


@dataclass(frozen=True, slots=True)
class Step(Generic[StateT]):
    """What one legal action did.

    Attributes:
        state: The position after the action.
        reward: The game's own reward, unshaped.
        terminated: Whether the episode has ended; the same as `game.ended(state) is not None`.
        info: Facts about the step by name, JSON-serialisable.
    """

    state: StateT
    reward: float
    terminated: bool
    info: Mapping[str, Any] = field(default_factory=dict)


class Game(ABC, Generic[StateT, ActionT]):
    """Base class of all games and tasks.

    A subclass sets the class attributes and implements the abstract methods; its docstring is its page in the docs.
    `vlmgym.testing.check_game` tests it. Actions are hashable and JSON-serialisable: an int, a string, or a tuple of
    ints.
    """

    name: ClassVar[str]
    """Name of the game without its version, for instance `2048`."""
    version: ClassVar[int] = 0
    """Raised whenever the same seed, configuration and actions may lead to another episode, image or prompt."""
    Config: ClassVar[type[GameConfig]] = GameConfig
    """Type of the configuration."""
    State: ClassVar[type[Any]]
    """Type of a position: a frozen dataclass of JSON-serialisable fields."""
    illegal_reward: ClassVar[float] = 0.0
    """The game's own reward of a turn whose response is illegal or unparsable."""
    longest_answer: ClassVar[int] = 200
    """Characters an answer may have."""

    def __init__(self, config: GameConfig | None = None) -> None:
        self.config: Any = self.Config() if config is None else config
        if not isinstance(self.config, self.Config):
            raise UsageError(f"{self.name} takes a {self.Config.__name__}, not a {type(config).__name__}")

    @property
    def id(self) -> str:
        """Name and version, for instance `2048-v0`; Gymnasium's id is `vlmgym/` and this."""
        return f"{self.name}-v{self.version}"

    # Rules ----------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """Native actions as a Gymnasium space; illegal actions are part of it."""

    @abstractmethod
    def start(self, rng: np.random.Generator) -> StateT:
        """A first position."""

    def start_at(self, seed: int, rng: np.random.Generator) -> StateT:
        """The first position of the episode with this seed.

        By default `start(rng)`. A task over a data set takes the row that belongs to the seed, so that seeds in a row
        go through all rows once.

        Args:
            seed: Seed of the episode, at least 0.
            rng: The generator of that seed.
        """
        return self.start(rng)

    def on_invalid(self, state: StateT) -> StateT:
        """The position after a response that was not played: the same one, but in a task of one turn an ended one."""
        return state

    @abstractmethod
    def legal_actions(self, state: StateT) -> Sequence[ActionT] | None:
        """All actions that `step` accepts, in a fixed order; empty when the episode has ended.

        None where they cannot be listed (a caption, a place on earth): every value of the action space is legal.
        """

    @abstractmethod
    def step(self, state: StateT, action: ActionT, rng: np.random.Generator) -> Step[StateT]:
        """The position after an action.

        Raises:
            IllegalAction: The action is out of range or against the rules; the message says why.
        """

    @abstractmethod
    def ended(self, state: StateT) -> str | None:
        """Why the episode has ended in this position, in a few words, or None while it goes on."""

    def best_action(self, state: StateT) -> ActionT | None:
        """A very good action (an oracle), or None where none is known."""
        return None

    def metrics(self, state: StateT, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """Facts about an episode for the summary: numbers are averaged over episodes, words are counted.

        Args:
            state: The final position, or the latest.
            infos: `Step.info` of each turn in order; empty for a turn that was not played.
        """
        return {}

    # Images and words ----------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, state: StateT) -> ImageArray | Sequence[ImageArray]:
        """The image, or the images: uint8 RGB arrays of the shapes in `image_shapes`."""

    @abstractmethod
    def describe(self, state: StateT) -> str:
        """The image in words: the ground truth that a response's perception is compared with."""

    @abstractmethod
    def prompt(self, state: StateT) -> str:
        """What a model is told beside the image: rules, actions, coordinates, response form."""

    def instructions(self, state: StateT) -> str:
        """The text of a turn: `prompt`, or the configured one, in which `{prompt}` stands for it."""
        own: str | None = self.config.prompt
        return self.prompt(state) if own is None else own.replace("{prompt}", self.prompt(state))

    @abstractmethod
    def parse_answer(self, text: str) -> ActionT:
        """The action written inside `<answer>`.

        Raises:
            ParseError: The text is not an action in one of its documented forms; the message says what was wrong.
        """

    def normalise_answer(self, text: str) -> str:
        """Rewrite any unambiguous spelling of an action as one that `parse_answer` reads; `strict` turns this off.

        By default markup around the answer goes, see `vlmgym.sandbox.core.answer_text`. A text that is no action
        stays one
        that `parse_answer` refuses.
        """
        return unwrap(text) if isinstance(self.action_space, spaces.Text) else plain(text)

    @abstractmethod
    def format(self, action: ActionT) -> str:
        """An action as words; `parse_answer` inverts it."""

    def explain(self, state: StateT, action: ActionT) -> str:
        """Reasoning that leads to an action, in words true of the state."""
        return f"I choose {self.format(action)}."

    def key_action(self, state: StateT, key: str) -> ActionT | None:
        """The action that a key plays in `vlmgym play`, by the key's name (`up`, `space`); None: it plays none."""
        return None

    def perceive(self, state: StateT, text: str) -> Perception | None:
        """How well a description of the image agrees with the state, cell by cell of `describe`'s grid.

        None in a game that has no truth to compare with.
        """
        return compare_grids(self.describe(state), text)

    # What follows from the above ------------------------------------------------------------------------------------

    def parse(self, response: str) -> ActionT:
        """The action of a whole response, which holds exactly one `<answer>`.

        Raises:
            ParseError: See `parse_answer`, or the response has no answer or several.
        """
        answer = response_format.parse_response(response).answer(self.longest_answer)
        return self.parse_answer(answer if self.config.strict else self.normalise_answer(answer))

    def respond(self, state: StateT, action: ActionT) -> str:
        """A whole response in the documented form, with true perception, that plays an action."""
        return response_format.compose(self.describe(state), self.explain(state, action), self.format(action))

    def images(self, state: StateT) -> list[ImageArray]:
        """The images of a position as a list."""
        drawn = self.draw(state)
        return [drawn] if isinstance(drawn, np.ndarray) else list(drawn)

    def draw_into(self, state: StateT, out: Sequence[ImageArray], shown: StateT | None = None) -> None:
        """Draw a position into memory that is there already.

        Args:
            state: The position.
            out: Arrays of the shapes in `image_shapes`, uint8.
            shown: The position whose images `out` holds, so that only what changed needs to be drawn.
        """
        for target, image in zip(out, self.images(state), strict=True):
            target[:] = image

    @property
    def image_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """Shape (height, width, 3) of each image; the same for all positions. By default one square of `size`."""
        return ((self.config.size, self.config.size, 3),)

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Gymnasium space of the image: a uint8 `Box` (height, width, 3), or a `Tuple` of them."""
        boxes = [ImageSpace(shape) for shape in self.image_shapes]
        return boxes[0] if len(boxes) == 1 else spaces.Tuple(boxes)

    def to_action(self, value: Any) -> Any:
        """A value of `action_space`, or an action read from JSON, as this game's action type.

        Only the type is looked at: a number out of range is an illegal action, which is for `step` to say.

        Raises:
            UsageError: The value is not of the action space's type.
        """
        space = self.action_space
        if type(value) is int and isinstance(space, spaces.Discrete):  # nearly always, and thousands of times a second
            return value
        plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        if isinstance(space, spaces.Text):
            fits = isinstance(plain, str)
        elif isinstance(space, spaces.Discrete):
            fits = is_int(plain)
        elif isinstance(space, spaces.MultiDiscrete):
            plain = tuple(plain) if isinstance(plain, list | tuple) else ()
            fits = len(plain) == space.nvec.size and all(map(is_int, plain))
        else:
            fits = space.contains(value)
        if not fits:
            raise UsageError(f"an action of {self.name} is a value of {space}, not {short_repr(value)}")
        return plain

    def random_action(self, rng: np.random.Generator) -> ActionT:
        """An action drawn uniformly from the whole action space, legal or not."""
        space, drawn = self.action_space, None
        if isinstance(space, spaces.Discrete):
            drawn = space.start + rng.integers(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            drawn = space.start + rng.integers(space.nvec)
        else:
            own = deepcopy(space)  # sampling changes a space
            own.seed(int(rng.integers(2**31)))
            drawn = own.sample()
        action: ActionT = self.to_action(drawn)
        return action

    # Positions as JSON ----------------------------------------------------------------------------------------------

    def to_json(self, state: StateT) -> str:
        """A position as one line of JSON."""
        return self._adapter.dump_json(state).decode()

    def from_json(self, text: str) -> StateT:
        """A position from `to_json`.

        Raises:
            StateError: The text is not a position of this game with this configuration.
        """
        try:
            state: StateT = self._adapter.validate_json(text, strict=True)
        except ValidationError as error:
            raise StateError(f"invalid state of {self.name}: {describe_validation_error(error)}") from None
        self.check_state(state)
        return state

    def to_data(self, state: StateT) -> Any:
        """A position as plain data, the same that `to_json` writes."""
        return self._adapter.dump_python(state, mode="json")

    def from_data(self, data: Any) -> StateT:
        """A position from `to_data`.

        Raises:
            StateError: As `from_json`.
        """
        return self.from_json(json.dumps(data))

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that differ between games, versions and configurations."""
        identity = json.dumps([self.id, self.config.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.State)

    def check_state(self, state: StateT) -> None:
        """Refuse a position that does not fit the configuration, for instance a board of another size.

        Raises:
            StateError: The message says what does not fit.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        """Only the configuration travels to other processes, where all copies are one object that keeps its sprites."""
        return _shared, (type(self), self.config)

    def __eq__(self, other: object) -> bool:
        """Equal games have the same class and configuration."""
        return isinstance(other, type(self)) and type(self) is type(other) and self.config == other.config

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"


@lru_cache(maxsize=64)
def _shared(game_class: Callable[[GameConfig], Game[Any, Any]], config: GameConfig) -> Game[Any, Any]:
    return game_class(config)


def is_int(value: object) -> bool:
    """Whether a value is an int, which `True` and `1.0` are not, though they are equal to one."""
    return isinstance(value, int) and not isinstance(value, bool)
