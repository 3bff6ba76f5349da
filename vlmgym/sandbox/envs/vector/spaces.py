"""Observation and action spaces of vector environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import spaces
from gymnasium.vector.utils import batch_differing_spaces, batch_space
from numpy.typing import NDArray

from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.spaces import ImageSpace

Space = spaces.Space[Any]


def observation_space(shapes: Sequence[tuple[int, ...]], *batch: int) -> Space:
    """Return an `ImageSpace` for one image shape, or a `Tuple` of them for several.

    Args:
        shapes: Shape of each image.
        batch: Dimensions to add before each shape.
    """
    images = [ImageSpace((*batch, *shape)) for shape in shapes]
    return images[0] if len(images) == 1 else spaces.Tuple(images)


def action_spaces(games: Sequence[Game[Any, Any]]) -> tuple[Space | None, Space]:
    """Return the action space that all games share (None if theirs differ), and the space of a batch of actions."""
    each = [game.action_space for game in games]
    first = each[0]
    if all(space == first for space in each):
        return first, batch_space(first, len(each))
    if all(type(space) is type(first) and space.shape == first.shape for space in each):
        return None, batch_differing_spaces(each)
    return None, spaces.Tuple(each)


def plain_action_space(games: Sequence[Game[Any, Any]], space: Space | None) -> Space | None:
    """Return the shared action space `space` if its values are ints or int tuples that games use as actions unchanged.

    Returns None if there is no shared space, or if a game converts values of the space in its own way.
    """
    convert = (Game.to_action, Game.action_from_data)
    numbers = isinstance(space, spaces.Discrete) or (isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1)
    return space if numbers and all((type(g).to_action, type(g).action_from_data) == convert for g in games) else None


def contains_all(space: Space, actions: NDArray[Any]) -> bool:
    """Return True if an array is a batch of values of a numeric space; many times faster than checking one by one."""
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    if actions.dtype.kind not in "iu" or actions.shape[1:] != space.shape:
        return False
    end = space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec)
    return bool(((actions >= space.start) & (actions < end)).all())
