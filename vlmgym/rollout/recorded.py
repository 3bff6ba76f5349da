"""Positions and actions of a record as its game reads them; a record may have been edited by hand."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from vlmgym.errors import StateError, UsageError
from vlmgym.records.episode import EpisodeRecord, TurnRecord
from vlmgym.sandbox.core.game import Game


def recorded_positions(game: Game[Any, Any], episode: EpisodeRecord) -> list[Any]:
    """The positions that were answered, and the last one.

    Raises:
        UsageError: One is no position of the game; the message says in which turn.
    """
    states = [(f"turn {turn.turn}", turn.state) for turn in episode.turns] + [("final_state", episode.final_state)]
    return [_position(game, where, state) for where, state in states]


def _position(game: Game[Any, Any], where: str, state: Any) -> Any:
    try:
        return game.from_data(state)
    except StateError as error:
        raise UsageError(f"{where}: {error}") from None


def recorded_action(game: Game[Any, Any], turn: TurnRecord) -> str | None:
    """The action of a turn in words, or None if the response held none.

    Raises:
        UsageError: It is no action of the game.
    """
    if turn.action is None:
        return None
    try:
        action = game.to_action(turn.action)
    except UsageError as error:
        raise UsageError(f"turn {turn.turn}: {error}") from None
    space = game.action_space  # whose `contains` overflows for integers of more than 64 bits
    if isinstance(space, spaces.Discrete) and not 0 <= action - int(space.start) < int(space.n):
        raise UsageError(f"turn {turn.turn}: an action of {game.name} must be in {game.action_space}, got {action}")
    return game.format(action)
