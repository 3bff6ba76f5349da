"""What a model is told and shown in a turn: the game's prompt, earlier turns, why the last was not played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vlmgym.sandbox.core.game import Game, ImageArray, StateT
from vlmgym.sandbox.core.reward import Outcome

T = TypeVar("T")

LONGEST_PAST_RESPONSE = 2000
"""Characters of an earlier response that are repeated; the end is kept, where the answer is."""


@dataclass(frozen=True, slots=True)
class PastTurn(Generic[StateT]):
    """An earlier turn of the same episode.

    Attributes:
        state: The position that was answered.
        turn: Number of the turn, from 1.
        response: What the model said.
        outcome: What became of it.
        reward: The game's own reward.
        feedback: Why it was not played, or empty.
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
    """The text of a turn.

    Args:
        game: The game.
        state: The current position.
        feedback: Why the turn before was not played, or empty.
        history: Earlier turns to repeat, oldest first.
        history_images: Of how many of them, the latest, `turn_images` shows the images again.
    """
    parts = [game.instructions(state)]
    if history:
        each = len(game.image_shapes)
        unseen = max(0, len(history) - history_images)
        if unseen < len(history):
            last = "The last image shows" if each == 1 else f"The last {each} images show"
            parts.append(f"{last} the position now; those before, what you saw in earlier turns, as is said there.")
        lines = [_past(past, _numbers(i - unseen, each) if i >= unseen else "") for i, past in enumerate(history)]
        parts.append("Your earlier turns, oldest first:\n" + "\n".join(lines))
    if feedback:
        parts.append(f"Your last response was not played: {feedback}. The image has not changed.")
    return "\n\n".join(parts)


def turn_images(
    game: Game[StateT, object], state: StateT, history: Sequence[PastTurn[StateT]] = (), history_images: int = 0
) -> list[ImageArray]:
    """The images of a turn: those of the latest `history_images` earlier turns, oldest first, then the position's."""
    shown = [*shown_again([past.state for past in history], history_images), state]
    return [image for position in shown for image in game.images(position)]


def shown_again(past: Sequence[T], history_images: int) -> Sequence[T]:
    """Of a prompt's earlier turns, oldest first, those whose images are shown again: the latest."""
    return past[-history_images:] if history_images else ()


def _numbers(place: int, each: int) -> str:
    """Which images belong to the earlier turn at this place of those that are shown."""
    first = place * each + 1
    return f"image {first}, " if each == 1 else f"images {first} to {first + each - 1}, "


def _past(past: PastTurn[StateT], images: str) -> str:
    said = past.response.strip()
    if len(said) > LONGEST_PAST_RESPONSE:
        said = "..." + said[-LONGEST_PAST_RESPONSE:]
    what = f"{past.outcome.value}: {past.feedback}" if past.feedback else past.outcome.value
    return f"Turn {past.turn} ({images}{what}, reward {past.reward:g}): {said}"
