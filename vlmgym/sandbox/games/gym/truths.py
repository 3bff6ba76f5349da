"""Text descriptions of environment images, derived from the environment's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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


NOT_DESCRIBED = "not described"
"""Description of an image without a ground truth."""

TRUTHS: Mapping[str, Callable[[Any], str]] = {
    "frozen_lake": frozen_lake,
    "cliff_walking": cliff_walking,
    "taxi": taxi,
    "blackjack": blackjack,
    "minigrid": minigrid,
}
"""Functions that describe an unwrapped environment's image, keyed by the value of `truth` in a family's file."""
