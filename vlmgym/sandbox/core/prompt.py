"""Prompts and images of a turn: the game's prompt, the history, and feedback on an invalid response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vlmgym.sandbox.core.game import Game, ImageArray, StateT
from vlmgym.sandbox.core.reward import Outcome

T = TypeVar("T")

LONGEST_PAST_RESPONSE = 2000
"""Maximum number of characters of a past response; longer ones keep their end, where the answer is."""


@dataclass(frozen=True, slots=True)
class PastTurn(Generic[StateT]):
    """An earlier turn of the same episode: its number from 1, and the state before it.

    `reward` is the game's own; `feedback` says why the response was invalid, or is empty.
    """

    state: StateT
    turn: int
    response: str
    outcome: Outcome
    reward: float
    feedback: str


def turn_prompt(
    game: Game[StateT, object],
    state: StateT,
    feedback: str = "",
    history: Sequence[PastTurn[StateT]] = (),
    history_images: int = 0,
) -> str:
    """Build the prompt of a turn, with feedback on an invalid last response and past turns, oldest first.

    `history_images` is the number of latest past turns whose images `turn_images` includes.
    """
    parts = [game.instructions(state)]
    if history:
        each = len(game.image_shapes)
        unseen = max(0, len(history) - history_images)
        if unseen < len(history):
            last = "The last image shows" if each == 1 else f"The last {each} images show"
            parts.append(f"{last} the current state; the images before are from the earlier turns listed below.")
        lines = [_past(past, _numbers(i - unseen, each) if i >= unseen else "") for i, past in enumerate(history)]
        parts.append("Your earlier turns, oldest first:\n" + "\n".join(lines))
    if feedback:
        parts.append(f"Your last response was not played: {feedback}. The image has not changed.")
    return "\n\n".join(parts)


def turn_images(
    game: Game[StateT, object], state: StateT, history: Sequence[PastTurn[StateT]] = (), history_images: int = 0
) -> list[ImageArray]:
    """Images of the latest `history_images` past turns, oldest first, then those of the current state."""
    shown = [*shown_again([past.state for past in history], history_images), state]
    return [image for each in shown for image in game.images(each)]


def shown_again(past: Sequence[T], history_images: int) -> Sequence[T]:
    """Select the past turns whose images are included: the latest `history_images`."""
    return past[-history_images:] if history_images else ()


def _numbers(index: int, each: int) -> str:
    """Name the images of the past turn at an index among those with images."""
    first = index * each + 1
    return f"image {first}, " if each == 1 else f"images {first} to {first + each - 1}, "


def _past(past: PastTurn[StateT], images: str) -> str:
    response = past.response.strip()
    if len(response) > LONGEST_PAST_RESPONSE:
        response = "..." + response[-LONGEST_PAST_RESPONSE:]
    what = f"{past.outcome.value}: {past.feedback}" if past.feedback else past.outcome.value
    return f"Turn {past.turn} ({images}{what}, reward {past.reward:g}): {response}"
