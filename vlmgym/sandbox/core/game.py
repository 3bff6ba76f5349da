"""The game interface: rules, images and text.

A game object holds only its configuration. The state is a separate, immutable, JSON-serialisable value, and every
method is a pure function of its arguments; all randomness comes from the `numpy.random.Generator` passed in.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from vlmgym.errors import (
    GenerationError,
    IllegalAction,
    ParseError,
    StateError,
    UsageError,
    describe_exception,
    describe_validation_error,
    short_repr,
)
from vlmgym.sandbox.answers.base import ActionT, Answer, plain
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.core.perception import Perception, compare_grids

StateT = TypeVar("StateT")
T = TypeVar("T")
ImageArray = NDArray[np.uint8]
"""An RGB image, uint8, shape (height, width, 3)."""
Info = Mapping[str, Any]
"""JSON-serialisable facts about a turn."""
Infos = Sequence[Info]
"""Facts about each turn of an episode, in order; those about invalid turns, from `Game.on_invalid`, are often empty."""
Metrics = Mapping[str, float | str]
"""Metrics of an episode for the summary: numbers are averaged over episodes, strings are counted."""
Skill = Literal["arithmetic", "knowledge", "memory", "perception", "planning", "search", "spatial"]
OWN_DATA = "data of the author, under its own licence"
"""`Game.image_source` of games that show a user's own data."""
NOT_DESCRIBED = "not described"
"""`Game.describe` of images without a ground truth."""


@dataclass(frozen=True, slots=True)
class Step(Generic[StateT]):
    """Result of a turn: the next state, the game's own reward before shaping, and facts about the turn."""

    state: StateT
    reward: float
    info: Info = field(default_factory=dict)


class Game(ABC, Generic[StateT, ActionT]):
    """Base class of all games and tasks.

    Subclasses set the class attributes and implement the abstract methods; the class docstring documents the game.
    Test them with `vlmgym.testing.check_game`. Actions are ints, strings or tuples of ints.
    """

    name: ClassVar[str]
    """Name of the game without its version, e.g. `2048`."""
    title: ClassVar[str] = ""
    """Name of the game in headings; by default, `name` capitalised."""
    version: ClassVar[int] = 0
    """Increment whenever the same seed, config and actions can produce a different episode, image or prompt."""
    Config: ClassVar[type[GameConfig]] = GameConfig
    State: ClassVar[type[Any]]
    """A frozen dataclass of JSON-serialisable fields."""
    answer: Answer[Any]
    """The kind of answer: the action space, and how actions are written, read and entered."""
    illegal_reward: float = 0.0
    """The game's own reward for an illegal or unparsable turn."""
    invalid_keeps_state: bool = True
    """False if an illegal or unparsable turn changes the state; see `on_invalid`."""
    partially_observable: bool = False
    """True if images hide things that affect the result of a move, such as mines."""
    history: int = 0
    """Number of past turns, with images, that prompts include by default; above 0 for games that need memory."""
    reward_is_hint: bool = False
    """True if rewards reveal the best actions. Prompts then omit rewards, and `qa/` accepts any best-rewarded move."""
    optimal_oracle: ClassVar[bool] = False
    """True if `best_action` ends every episode with a score of 1 in the fewest actions."""
    replayed: ClassVar[bool] = False
    """True if states contain all actions so far. Records then store `to_record`; states are restored by replaying."""
    prompt_template: ClassVar[str]
    """Template that `fill_prompt` fills in."""
    perception_form: ClassVar[str] = "what the image shows"
    """What to write between `<perception>` and `</perception>`, for prompts."""
    asks_prediction: bool = False
    """True if responses must have a `<prediction>`: the board after the move; see `predict`."""
    prediction_form: ClassVar[str] = "the board after your answer, in the same form"
    """What to write between `<prediction>` and `</prediction>`, for prompts; empty if moves change no description."""
    attempts: ClassVar[int] = 1000
    """Maximum number of calls of `BoardGame.deal` or `Task.generate`, which may return None to be called again."""
    images_per_state: int = 1
    """Number of images that show a state."""
    actions_per_turn: int = 1
    """Maximum number of actions in a response; above 1, they are separated by `SEPARATOR` and played in order."""
    statements: ClassVar[re.Pattern[str] | None] = None
    """Matches the statements of `explain` that can be checked; about an action, they must name it. See
    `check_reasoning`."""
    skills: ClassVar[tuple[Skill, ...]] = ()
    """Skills that the game tests most; suites group scores by them."""

    def __init__(self, config: GameConfig | None = None) -> None:
        self.config: Any = self.Config() if config is None else config
        if not isinstance(self.config, self.Config):
            raise UsageError(f"config of {self.name} must be a {self.Config.__name__}, got {type(config).__name__}")
        if hasattr(self, "answer"):  # else, the subclass sets it
            self.answer = self.answer.of(self.config)

    @property
    def id(self) -> str:
        """Name and version, e.g. `2048-v0`. The Gymnasium id adds the prefix `vlmgym/`."""
        return f"{self.name}-v{self.version}"

    # Rules ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, rng: np.random.Generator) -> StateT:
        """Sample an initial state."""

    def start_at(self, seed: int, rng: np.random.Generator) -> StateT:
        """Initial state of the episode with this seed; `start(rng)` by default.

        A task over a dataset uses the seed to pick a row: consecutive seeds visit every row once.
        """
        return self.start(rng)

    def on_invalid(self, state: StateT, rng: np.random.Generator) -> Step[StateT]:
        """Effect of an illegal or unparsable turn: by default, the state stays unchanged. One-turn tasks terminate."""
        return Step(state, self.illegal_reward)

    @abstractmethod
    def legal_actions(self, state: StateT) -> Sequence[ActionT] | None:
        """All actions that `step` accepts, in a fixed order; empty once the episode has ended.

        None if they cannot be enumerated (captions, coordinates); every value of the action space is then legal.
        """

    @abstractmethod
    def step(self, state: StateT, action: ActionT, rng: np.random.Generator) -> Step[StateT]:
        """Apply an action in a state that has not ended.

        Raises:
            IllegalAction: The action is out of range or breaks the rules; the message says why.
        """

    @abstractmethod
    def ended(self, state: StateT) -> str | None:
        """Short reason why the episode has ended in this state, or None if it has not."""

    def best_action(self, state: StateT) -> ActionT | None:
        """Oracle: a strong action, or None if none is known."""
        return None

    def follow_up(self, state: StateT, action: ActionT) -> list[ActionT]:
        """List the oracle's actions after an action, for the same response: at most `actions_per_turn` with it.

        The list ends early where the next state depends on chance. It is empty if images hide parts of the state, which
        an action may reveal.
        """
        actions: list[ActionT] = []
        if self.partially_observable:
            return actions
        try:
            while len(actions) + 1 < self.actions_per_turn:
                state = self.step(state, action, NO_CHANCE).state
                following = None if self.ended(state) else self.best_action(state)
                if following is None:
                    break
                actions.append(following)
                action = following
        except (ChanceNeeded, IllegalAction):
            pass
        return actions

    def goal(self, state: StateT) -> StateT | None:
        """State to reach from this one, for prompts with a goal image; None if the game has no such state."""
        return None

    def is_as_good(self, state: StateT, action: ActionT, best: ActionT) -> bool:
        """Return whether an action has the same effect as the best one or, if rewards are hints, as high a reward.

        Other actions may be as good, too. Raises `IllegalAction` if the action is illegal.
        """
        step, best_step = (self.step(state, candidate, np.random.default_rng(0)) for candidate in (action, best))
        if self.reward_is_hint and step.reward >= best_step.reward > 0:
            return True
        return (step.state, step.reward) == (best_step.state, best_step.reward)

    def rule_action(self, state: StateT) -> ActionT | None:
        """Action chosen by a simple, easily imitated rule that `explain` follows; None if the game has no such rule."""
        return None

    def metrics(self, state: StateT, infos: Infos) -> Metrics:
        """Episode metrics for the summary; `infos` has the `Step.info` of each turn."""
        return {}

    # Images and text -----------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, state: StateT) -> ImageArray | Sequence[ImageArray]:
        """Render the state as one or more uint8 RGB arrays of the shapes in `image_shapes`."""

    @abstractmethod
    def describe(self, state: StateT) -> str:
        """Text description of the image: the ground truth for a response's `<perception>`."""

    @property
    def image_source(self) -> str | None:
        """Source and licence of the images' content; None if it is generated."""
        return None

    @property
    def no_text_observation(self) -> str | None:
        """Reason why prompts must not contain `describe`, e.g. that it reveals the answer; None if they may."""
        return None

    def prompt(self, state: StateT) -> str:
        """Prompt that accompanies the image: rules, actions, coordinates and response format."""
        return self.fill_prompt()

    def fill_prompt(self, perception: str = "", **fields: object) -> str:
        """Fill in `prompt_template` with the config fields, `fields`, `actions` and `form`.

        `actions` lists the possible answers; `form` is the response format, with `perception`, by default
        `perception_form`, as the content of its tag.
        """
        prediction = self.prediction_form if self.asks_prediction else None
        perception, tag = perception or self.perception_form, self.config.think_tag
        form = response_format.instructions(perception, self.answer.form, prediction, tag)
        if self.actions_per_turn > 1:
            form += f" It may contain up to {self.actions_per_turn} actions, separated by semicolons. "
            form += "They are played in order, up to the first that is illegal."
        return self.prompt_template.format_map({**self._prompt_fields, **fields, "form": form})

    @cached_property
    def _prompt_fields(self) -> dict[str, Any]:
        """Fields of `prompt_template` that are the same in all states."""
        return {**dict(self.config), "actions": self.answer.sentence}

    def instructions(self, state: StateT) -> str:
        """`prompt`, or the configured replacement with `{prompt}` filled in."""
        template: str | None = self.config.prompt
        return self.prompt(state) if template is None else template.replace("{prompt}", self.prompt(state))

    def explain(self, state: StateT, action: ActionT) -> str:
        """Reasoning that leads to a legal action; must be true of the state."""
        return f"I choose {self.answer.format(action)}."

    def explain_illegal(self, state: StateT, action: ActionT, error: IllegalAction) -> str:
        """Reasoning before an illegal action, as in demonstrations of imperfect players; must be true."""
        return f"The move {self.answer.format(action)} is illegal: {error}."

    def check_reasoning(self, state: StateT, text: str) -> list[bool]:
        """Return whether each statement of a text is true of the state, in order; skip all that `explain` does not say.

        By default, a match of `statements` is true if `explain` says it about a legal action. Empty if the text has no
        statement, or the game checks none.
        """
        pattern = self.statements
        if pattern is None or pattern.search(text) is None:
            return []
        actions = self.legal_actions(state) or ()
        truths = {match[0] for action in actions for match in pattern.finditer(self.explain(state, action))}
        return [match[0] in truths for match in pattern.finditer(text)]

    def perceive(self, state: StateT, text: str) -> Perception | None:
        """Score a description of the image against `describe`, cell by cell; None without a ground truth."""
        truth = self.describe(state)
        return None if truth == NOT_DESCRIBED else compare_grids(truth, text)

    def predict(self, state: StateT, actions: Sequence[ActionT]) -> str | None:
        """Describe the board after actions, as far as the rules determine it.

        Returns None if chance decides, or if the image hides something. Games with random effects that can be left out,
        such as new tiles, override `after_move`. Raises `IllegalAction` if an action is illegal.
        """
        if self.partially_observable:
            return None
        try:
            for action in actions[:-1]:
                if self.ended(state := self.step(state, action, NO_CHANCE).state) is not None:
                    return self.describe(state)
            return self.after_move(state, actions[-1])
        except ChanceNeeded:
            return None

    def after_move(self, state: StateT, action: ActionT) -> str:
        """Describe the board after an action without its random effects; raise `ChanceNeeded` if they decide."""
        return self.describe(self.step(state, action, NO_CHANCE).state)

    # Derived from the above -----------------------------------------------------------------------------------------

    def respond(self, state: StateT, action: ActionT, *later_actions: ActionT) -> str:
        """Write a well-formed response with correct perception that plays an action, even an illegal one.

        It also plays `later_actions`, if the game takes several per turn; see `follow_up`.
        """
        try:
            self.step(state, action, np.random.default_rng(0))
            reasoning = self.explain(state, action)
        except IllegalAction as error:
            reasoning = self.explain_illegal(state, action, error)
        perception, answer = self.describe(state), self.format_actions((action, *later_actions))
        prediction = self._predicted(state, (action, *later_actions))
        return response_format.compose(perception, reasoning, answer, prediction, self.config.think_tag)

    def _predicted(self, state: StateT, actions: Sequence[ActionT]) -> str | None:
        """Return the prediction of a response, after illegal actions the same board; None if it is not asked for."""
        if not self.asks_prediction:
            return None
        try:
            return self.predict(state, actions) or ""
        except IllegalAction:
            return self.describe(state)

    def format_actions(self, actions: Sequence[ActionT]) -> str:
        """Write the actions of a response."""
        return f"{SEPARATOR} ".join(map(self.answer.format, actions))

    def parse_actions(self, text: str) -> list[ActionT]:
        """Parse the actions of a response.

        Raises:
            ParseError: The text has no action, too many, or something else.
        """
        if self.actions_per_turn == 1:
            return [self.answer.parse(text)]
        parts = plain(text).removesuffix(SEPARATOR).split(SEPARATOR)
        if len(parts) > self.actions_per_turn:
            raise ParseError(f"the answer has {len(parts)} actions; at most {self.actions_per_turn} are allowed")
        return list(map(self.answer.parse, parts))

    def recorded_actions(self, data: Any) -> list[ActionT]:
        """Read the actions of a turn's record; raise `UsageError` if it has other data."""
        if self.actions_per_turn == 1:
            return [self.answer.from_data(data)]
        if not isinstance(data, list) or not data:
            raise UsageError(f"the actions of a turn must be a list, got {short_repr(data)}")
        return list(map(self.answer.from_data, data))

    def images(self, state: StateT) -> list[ImageArray]:
        """Images of a state as a list."""
        images = self.draw(state)
        return [images] if isinstance(images, np.ndarray) else list(images)

    def draw_into(self, state: StateT, out: Sequence[ImageArray], shown: StateT | None = None) -> None:
        """Render a state into arrays of `image_shapes`. If these already show `shown`, only changes need drawing."""
        if state != shown:
            for target, image in zip(out, self.images(state), strict=True):
                target[:] = image

    @property
    def image_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """Shape (height, width, 3) of each image, the same for all states; by default `size` x `size`."""
        return ((self.config.size, self.config.size, 3),) * self.images_per_state

    # States as JSON -------------------------------------------------------------------------------------------------

    def to_json(self, state: StateT) -> str:
        """Serialise a state as one line of JSON."""
        return self._adapter.dump_json(state).decode()

    def from_json(self, text: str) -> StateT:
        """Parse a state written by `to_json`; raise `StateError` if it does not fit this game and config."""
        self.check_restorable()
        try:
            return self.require_valid(self._adapter.validate_json(text, strict=True))
        except ValidationError as error:
            raise StateError(f"invalid state of {self.name}: {describe_validation_error(error)}") from None

    def require_valid(self, state: StateT) -> StateT:
        """Return the state if `check_state` accepts it; otherwise raise `StateError` with the name of the game."""
        try:
            self.check_state(state)
        except StateError as error:
            raise StateError(f"invalid state of {self.name}: {error}") from None
        return state

    def to_data(self, state: StateT) -> Any:
        """Convert a state to plain data, equal to the parsed JSON of `to_json`."""
        return self._adapter.dump_python(state, mode="json")

    def to_record(self, state: StateT) -> Any:
        """Convert a state to plain data for a turn's record. If `replayed`, the data only has to identify the state."""
        return self.to_data(state)

    def from_data(self, data: Any) -> StateT:
        """Parse a state from `to_data`; raise `StateError` if it does not fit this game and config."""
        try:
            text = json.dumps(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise StateError(f"a state of {self.name} must be plain JSON data, as from to_data: {error}") from None
        return self.from_json(text)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the game, its version and its config."""
        config = self.config.model_dump(mode="json")
        for name in type(self.config).later_fields:
            if config[name] == self.Config.model_fields[name].default:
                del config[name]
        identity = json.dumps([self.id, config], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.State)

    def check_state(self, state: StateT) -> None:
        """Check that a state fits the config; raise `StateError` with the reason. By default, describe it.

        Overrides need not check that play can lead to the state.
        """
        try:
            self.describe(state)
        except (LookupError, TypeError, ValueError) as error:
            raise StateError(f"it cannot be described: {describe_exception(error)}") from None

    def check_restorable(self) -> None:
        """Raise `StateError` if states cannot be restored from JSON."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only class and config; in a process, equal games unpickle to one instance with its cached sprites."""
        return _shared, (type(self), self.config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Game) and type(self) is type(other) and bool(self.config == other.config)

    def __hash__(self) -> int:
        return hash((type(self), self.config))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config!r})"


class ChanceNeeded(Exception):
    """A step depends on chance."""


class _NoChance:
    """A random generator that raises `ChanceNeeded` when it is used."""

    def __getattr__(self, name: str) -> Any:
        raise ChanceNeeded(name)


NO_CHANCE: Any = _NoChance()
SEPARATOR = ";"
"""What separates the actions of a response."""


def retry(generate: Callable[[], T | None], attempts: int, noun: str) -> T:
    """Return the first result of a random generator that is not None.

    Raises:
        GenerationError: `attempts` calls returned None; `noun` says for what, in the message.
    """
    for _ in range(attempts):
        if (generated := generate()) is not None:
            return generated
    raise GenerationError(f"no {noun} was found in {attempts:,} attempts")


def pick(rng: np.random.Generator, values: Sequence[T]) -> T:
    """Choose a value uniformly, faster than `rng.choice`."""
    return values[int(rng.integers(len(values)))]


@lru_cache(maxsize=64)
def _shared(game_class: Callable[[GameConfig], Game[Any, Any]], config: GameConfig) -> Game[Any, Any]:
    return game_class(config)
