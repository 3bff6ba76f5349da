"""What a model is told in a turn: the game's prompt, earlier turns if asked for, why the last was not played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vlmgym.sandbox.game import Game, StateT
from vlmgym.sandbox.reward import Outcome

LONGEST_PAST_RESPONSE = 2000
"""Characters of an earlier response that are repeated; the end is kept, where the answer is."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """An earlier turn of the same episode.

    Attributes:
        turn: Number of the turn, from 1.
        response: What the model said.
        outcome: What became of it.
        reward: The game's own reward.
        feedback: Why it was not played, or empty.
    """

    turn: int
    response: str
    outcome: Outcome
    reward: float
    feedback: str


def turn_prompt(game: Game[StateT, object], state: StateT, feedback: str = "", history: Sequence[PastTurn] = ()) -> str:
    """The text of a turn.

    Args:
        game: The game.
        state: The current position.
        feedback: Why the turn before was not played, or empty.
        history: Earlier turns to repeat, oldest first.
    """
    parts = [game.prompt(state)]
    if history:
        parts.append("Your earlier turns, oldest first:\n" + "\n".join(map(_past, history)))
    if feedback:
        parts.append(f"Your last response was not played: {feedback}. The picture has not changed.")
    return "\n\n".join(parts)


def _past(past: PastTurn) -> str:
    said = past.response.strip()
    if len(said) > LONGEST_PAST_RESPONSE:
        said = "..." + said[-LONGEST_PAST_RESPONSE:]
    what = f"{past.outcome.value}: {past.feedback}" if past.feedback else past.outcome.value
    return f"Turn {past.turn} ({what}, reward {past.reward:g}): {said}"
