"""Prompts and images of a turn: the game's prompt, past turns, and feedback on an invalid response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from pydantic import ConfigDict, PositiveInt

from vlmgym.checks import check_instance, to_int
from vlmgym.errors import UsageError, short_repr
from vlmgym.sandbox.core.game import Game, ImageArray, StateT
from vlmgym.sandbox.core.reward import PARTLY, Outcome
from vlmgym.sandbox.drawing.skins import SkinName, apply_skin

T = TypeVar("T")

ObservationType = Literal["image", "text", "both"]
ImageControl = Literal["true", "blank", "stale", "shuffled", "swapped"]

CONTROLS: dict[ImageControl, str] = {
    "blank": "grey images",
    "stale": "the images of the initial state",
    "shuffled": "the images of another seed",
    "swapped": "its images in reverse order",
}
"""What a control experiment shows instead of the images of the turn."""

LONGEST_PAST_RESPONSE = 2000
"""Maximum number of characters of a past response in a prompt without chat. Longer responses lose their start, because
the answer is at the end."""


class Message(NamedTuple):
    """A chat message; its images precede its text."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: int = 0


@dataclass(frozen=True, kw_only=True)
class PromptConfig:
    """Contents of an episode's prompts."""

    observation: ObservationType = "image"
    """Show states as images, as text descriptions, or as both."""
    chat: bool = False
    """Play a conversation: the rules are the system prompt, and each turn is a user and an assistant message."""
    history: int | None = None
    """Number of past turns in each prompt. None means all with chat, else as many as the game needs, usually 0."""
    history_images: int | None = None
    """Number of past turns with images (with descriptions if there are no images). None means what the game needs."""
    images: ImageControl = "true"
    """Control experiment: blank shows grey images, stale those of the initial state, shuffled those of another seed,
    and swapped shows several images in reverse order, after that of the goal."""
    rules: bool = True
    """Explain the game. Without rules, prompts only have the possible actions and the response format."""
    feedback: bool = True
    """Say whether earlier responses were played, why not, and their rewards."""
    show_legal: bool = False
    """List the legal actions of each turn."""
    goal_image: bool = False
    """Show the state to reach as the first image of each prompt, in games that have one (sliding, jigsaw, ...)."""
    skin: SkinName = "flat"
    """Show images as if they were made of wood, printed on paper, sketched by hand, or photographed on a screen."""

    def __post_init__(self) -> None:
        if self.observation not in get_args(ObservationType):
            raise UsageError(f"observation must be image, text or both, got {short_repr(self.observation)}")
        if self.images not in get_args(ImageControl):
            raise UsageError(f"images must be true, blank, stale, shuffled or swapped, got {short_repr(self.images)}")
        if self.images != "true" and self.has_descriptions:
            raise UsageError(
                f"images {self.images} with observation {self.observation}: descriptions reveal the state, set only one"
            )
        if self.skin not in get_args(SkinName):
            raise UsageError(f"skin must be {', '.join(get_args(SkinName))}, got {short_repr(self.skin)}")
        for name in ("chat", "rules", "feedback", "show_legal", "goal_image"):
            check_instance(name, getattr(self, name), bool)
        if self.goal_image and not self.has_images:
            raise UsageError("goal_image needs prompts with images: set observation to image or both")
        for name in ("history", "history_images"):
            object.__setattr__(self, name, to_int(name, getattr(self, name), 0, optional=True))
        if self.history is not None and self.image_turns > self.history:
            raise UsageError(f"history_images must be at most history, got {self.history_images} and {self.history}")

    @property
    def prompts(self) -> PromptConfig:
        """A plain `PromptConfig` with these settings, without the fields of subclasses."""
        return PromptConfig(**{field.name: getattr(self, field.name) for field in fields(PromptConfig)})

    def of(self, needed: int) -> PromptConfig:
        """Return a copy with unset fields filled in for a game whose `Game.history` is `needed`."""
        history = self.history if self.history is not None or self.chat else needed
        images = self.history_images
        if images is None:
            images = needed if history is None else min(needed, history)
        return replace(self.prompts, history=history, history_images=images)

    @property
    def scaffolding(self) -> list[str]:
        """Names of the prompts' changes to rules, feedback, legal actions, goal and skin, for labels."""
        changes = {
            "no rules": not self.rules,
            "no feedback": not self.feedback,
            "legal actions": self.show_legal,
            "goal image": self.goal_image,
            f"{self.skin} skin": self.skin != "flat",
        }
        return [name for name, changed in changes.items() if changed]

    @property
    def image_turns(self) -> int:
        """`history_images`, or 0 if unset."""
        return self.history_images or 0

    @property
    def has_images(self) -> bool:
        """True if prompts have images."""
        return self.observation != "text"

    @property
    def has_descriptions(self) -> bool:
        """True if prompts describe states as text."""
        return self.observation != "image"

    def check(self, game: Game[Any, Any]) -> None:
        """Raise `UsageError` if the game cannot be played with these settings."""
        prompts = self.of(game.history)
        if self.images == "swapped" and len(game.image_shapes) * (1 + prompts.image_turns) == 1:
            raise UsageError(f"images swapped needs prompts with several images: {game.name} shows one")
        if self.has_descriptions and (reason := game.no_text_observation) is not None:
            raise UsageError(f"{game.name} cannot be played with observation {self.observation}: {reason}")
        if (self.show_legal or not self.rules) and _ACTIONS not in getattr(game, "prompt_template", ""):
            raise UsageError(f"{game.name} asks a question: it is played with its rules and without show_legal")
        if not self.rules and "{prompt}" not in (game.config.prompt or "{prompt}"):
            raise UsageError(f"the prompt of {game.name} is your own, without its rules: include {{prompt}} in it")
        if self.goal_image and type(game).goal is Game.goal:
            raise UsageError(f"{game.name} has no goal image: remove goal_image")
        if self.skin == "screen" and game.answer.names_points:
            raise UsageError(f"actions of {game.name} are points of the image, which skin screen moves: choose another")

    def window(self, past: Sequence[T]) -> Sequence[T]:
        """Select the past turns that a prompt includes."""
        return past if self.history is None else _last(past, self.history)

    def shown_states(self, past: Sequence[T], state: T) -> list[T]:
        """Select the states to show as images, oldest first, without the goal.

        Args:
            past: State before each past turn of the window.
            state: Current state.
        """
        return [*_last(past, self.image_turns), state] if self.has_images else []

    def draw(self, game: Game[StateT, Any], state: StateT, seed: int) -> list[ImageArray]:
        """Draw the images of a state in the skin; `seed` is that of the episode."""
        return [apply_skin(image, self.skin, seed) for image in game.images(state)]

    def shown_images(self, before: Sequence[T], images: Sequence[T], messages: Sequence[Message]) -> list[T]:
        """Return the images of a turn, with the goal and past turns, without rendering their states again.

        Args:
            before: Images of the turn before, with the goal and past turns.
            images: Images of the current state, or all images of the turn.
            messages: Messages of the turn.
        """
        past_images = sum(message.images for message in messages) - len(images)
        goal = min(past_images, len(images)) if self.goal_image else 0
        if self.images == "swapped":  # newest first, after the goal
            return [*before[:goal], *images, *before[goal:past_images]]
        return [*before[:goal], *before[max(0, len(before) - past_images + goal) :], *images]

    def messages(
        self, images: int, system: str | None, past: Sequence[tuple[str, str]], prompt: str
    ) -> tuple[Message, ...]:
        """Build the messages of a turn.

        Args:
            images: Number of images per state.
            system: System prompt of a chat; None without chat.
            past: Prompt and response of each past turn in the window.
            prompt: Prompt of the current turn.
        """
        images = images if self.has_images else 0
        if system is None:
            return (Message("user", prompt, images * (1 + self.goal_image + min(len(past), self.image_turns))),)
        messages = [Message("system", system)]
        goal = images * self.goal_image  # in the first user message
        for i, (past_prompt, response) in enumerate(past, self.image_turns - len(past)):
            messages += [Message("user", past_prompt, goal + (images if i >= 0 else 0)), Message("assistant", response)]
            goal = 0
        return (*messages, Message("user", prompt, goal + images))


def _last(items: Sequence[T], count: int) -> Sequence[T]:
    return items[-count:] if count else ()


def chat_messages(
    prompt: str | Sequence[Message], images: Sequence[T], part: Callable[[T], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Convert a prompt to the message dicts of chat templates and APIs, whose content is a list of parts.

    Args:
        prompt: Messages, or the text of a single user message with all images.
        images: Images of all messages, in order.
        part: Function that converts an image to a content part.
    """
    messages = [Message("user", str(prompt), len(images))] if isinstance(prompt, str) else prompt
    queue = iter(images)
    return [
        {
            "role": message.role,
            "content": [*(part(next(queue)) for _ in range(message.images)), {"type": "text", "text": message.text}],
        }
        for message in messages
    ]


@dataclass(frozen=True, slots=True)
class PastTurn(Generic[StateT]):
    """An earlier turn of the same episode.

    `state` is the state before the turn, `turn` its number from 1, and `reward` the game's own. `feedback` says why the
    response was invalid and is empty if it was played. `prompt` is the prompt of the turn in a chat, otherwise empty.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")  # for snapshots

    state: StateT
    turn: PositiveInt
    response: str
    outcome: Outcome
    reward: float
    feedback: str
    prompt: str = ""


def turn_prompt(
    game: Game[StateT, object],
    state: StateT,
    feedback: str = "",
    past: Sequence[PastTurn[StateT]] = (),
    config: PromptConfig = PromptConfig(),
) -> str:
    """Build the prompt of a turn without chat.

    Args:
        game: The game.
        state: Current state.
        feedback: Why the last response was invalid; empty if it was played.
        past: Past turns to include, oldest first.
        config: Contents of the prompt.
    """
    parts = [_instructions(game, state, config)]
    per_state = len(game.image_shapes)
    if past:
        unseen = len(past) - min(len(past), config.image_turns)
        if unseen < len(past) and config.goal_image:
            parts.append("The images between are from the earlier turns listed below.")
        elif unseen < len(past) and config.has_images:
            last_images = "The last image shows" if per_state == 1 else f"The last {per_state} images show"
            parts.append(f"{last_images} the current state; the images before are from the earlier turns listed below.")
        lines = []
        for i, turn in enumerate(past):
            index = i - unseen + config.goal_image
            images = _numbers(index, per_state) if i >= unseen and config.has_images else ""
            description = f"\n{game.describe(turn.state)}\nResponse:" if i >= unseen and config.has_descriptions else ""
            facts = ", ".join(filter(None, (images, _result(game, turn) if config.feedback else "")))
            lines.append(f"Turn {turn.turn}{f' ({facts})' if facts else ''}:{description} {_shortened(turn.response)}")
        parts.append("Your earlier turns, oldest first:\n" + "\n".join(lines))
    parts += _facts(game, state, config)
    if feedback and config.feedback:
        parts.append(_not_played(game, feedback, config))
    return "\n\n".join(parts)


def _instructions(game: Game[StateT, object], state: StateT, config: PromptConfig) -> str:
    text = game.instructions(state)
    if not config.rules:
        _, actions, rest = text.partition(_ACTIONS)
        text = f"Play a game without knowing its rules; you may find them out.{actions}{rest}"
    if config.goal_image:
        text += "\n\nThe first image shows the goal, the last image shows the current state."
    return text


_ACTIONS = "\nActions: "
"""What separates the rules in a game's prompt from the possible actions and the response format."""


def _facts(game: Game[StateT, Any], state: StateT, config: PromptConfig) -> list[str]:
    """Return the description of a state and its legal actions, if the prompt has them."""
    facts = []
    if config.has_descriptions:
        only_text = "Instead of an image, this text shows the current state"
        introduction = "Description of the current image" if config.has_images else only_text
        facts.append(f"{introduction}:\n{game.describe(state)}")
    if config.show_legal:
        facts.append(f"Legal actions: {'; '.join(map(game.answer.format, game.legal_actions(state) or ()))}.")
    return facts


def _not_played(game: Game[StateT, object], feedback: str, config: PromptConfig) -> str:
    if feedback.startswith(PARTLY):
        return f"Of your last response, {feedback}."
    noun = "image" if config.has_images else "description"
    note = f" The {noun} has not changed." if game.invalid_keeps_state else ""
    return f"Your last response was not played: {feedback}.{note}"


def turn_messages(
    game: Game[StateT, object],
    state: StateT,
    turn: int,
    feedback: str,
    past: Sequence[PastTurn[StateT]],
    config: PromptConfig,
) -> tuple[Message, ...]:
    """Build the messages of a turn; `turn` counts from 1. Their images are `LiveEpisode.images`, in order."""
    count, past_turns = len(game.image_shapes), [(turn.prompt, turn.response) for turn in past]
    if not config.chat:
        return config.messages(count, None, past_turns, turn_prompt(game, state, feedback, past, config))
    text = f"Turn {turn}."
    if config.feedback and feedback:
        text += f" {_not_played(game, feedback, config)}"
    elif config.feedback and past:
        text += f" Your last response was played{_reward(game, past[-1])}."
    prompt = "\n\n".join([text, *_facts(game, state, config)])
    return config.messages(count, _instructions(game, state, config), past_turns, prompt)


def blank(image: ImageArray) -> ImageArray:
    """Return a grey image of the same shape, for control experiments without vision."""
    return np.full_like(image, 128)


def _numbers(index: int, per_state: int) -> str:
    """Name the images of a past turn; `index` counts the states that the images show from 0."""
    first = index * per_state + 1
    return f"image {first}" if per_state == 1 else f"images {first} to {first + per_state - 1}"


def _reward(game: Game[StateT, object], past: PastTurn[StateT]) -> str:
    return "" if game.reward_is_hint else f", reward {past.reward:g}"


def _result(game: Game[StateT, object], past: PastTurn[StateT]) -> str:
    return f"{past.outcome.value}{': ' if past.feedback else ''}{past.feedback}{_reward(game, past)}"


def _shortened(response: str) -> str:
    response = response.strip()
    return response if len(response) <= LONGEST_PAST_RESPONSE else "..." + response[-LONGEST_PAST_RESPONSE:]
