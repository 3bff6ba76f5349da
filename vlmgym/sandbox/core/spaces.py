"""Gymnasium spaces of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class ImageSpace(spaces.Box):
    """`Box(0, 255, shape, uint8)` whose bounds are broadcast from one number and therefore take no memory."""

    def __init__(self, shape: tuple[int, ...], seed: int | np.random.Generator | None = None) -> None:
        super().__init__(0, 255, (1,), np.uint8, seed)
        self._shape = tuple(shape)
        self.low, self.high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)
        self.bounded_below = np.broadcast_to(self.bounded_below, shape)
        self.bounded_above = np.broadcast_to(self.bounded_above, shape)

    def sample(self, mask: None = None, probability: None = None) -> NDArray[Any]:
        """Sample uniform noise."""
        return self.np_random.integers(0, 256, self.shape, np.uint8)

    def contains(self, x: Any) -> bool:
        """Return True for a uint8 array of this shape."""
        return isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == np.uint8

    def __eq__(self, other: object) -> bool:
        return self.shape == other.shape if isinstance(other, ImageSpace) else super().__eq__(other)

    def __deepcopy__(self, memo: dict[int, Any]) -> ImageSpace:
        copy = ImageSpace(self.shape)
        if self._np_random is not None:
            copy._np_random = np.random.default_rng(0)
            copy._np_random.bit_generator.state = self._np_random.bit_generator.state
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageSpace, (self.shape, self._np_random)


def observation_space(shapes: Sequence[tuple[int, ...]], *batch: int) -> spaces.Space[Any]:
    """Return an `ImageSpace` for one image shape, or a `Tuple` of them for several.

    Args:
        shapes: Shape of each image.
        batch: Dimensions to add before each shape.
    """
    images = [ImageSpace((*batch, *shape)) for shape in shapes]
    return images[0] if len(images) == 1 else spaces.Tuple(images)
