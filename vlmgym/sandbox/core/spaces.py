"""Gymnasium spaces for images and lines of text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


def value_ranges(space: spaces.Space[Any]) -> tuple[range, ...]:
    """Range of each number in a `Discrete` or `MultiDiscrete` space; empty for other spaces."""
    if isinstance(space, spaces.Discrete):
        return (range(int(space.start), int(space.start + space.n)),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(range, space.start.tolist(), (space.start + space.nvec).tolist()))
    return ()


def sample_value(space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    """Sample from a space, uniformly if it is discrete, without changing the space's own random generator."""
    if isinstance(space, spaces.Discrete):
        return space.start + rng.integers(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start + rng.integers(space.nvec)
    own = deepcopy(space)  # sampling mutates a space
    own.seed(int(rng.integers(2**31)))
    return own.sample()


_REFUSED = ("Cc", "Cs")
"""Unicode categories of control characters and surrogates."""


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


class LineSpace(spaces.Text):
    """One line of text without surrounding whitespace. Samples are comma-separated words from a list.

    Excludes line breaks, control characters other than tab, and lone surrogates.
    """

    def __init__(
        self, longest: int, words: Sequence[str], most: int = 1, seed: int | np.random.Generator | None = None
    ) -> None:
        """Create a space of lines of up to `longest` characters, whose samples contain up to `most` of `words`."""
        super().__init__(longest, min_length=1, seed=seed)
        self.words, self.most = tuple(words), min(most, len(words))

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Sample distinct words uniformly; their number is uniform from 1 to `most`."""
        count = int(self.np_random.integers(1, self.most + 1))
        return ", ".join(self.words[int(i)] for i in self.np_random.choice(len(self.words), count, replace=False))

    def contains(self, x: Any) -> bool:
        """Return True for a valid line."""
        return self.fault(x) is None

    def fault(self, x: Any) -> str | None:
        """Return why a value is not a valid line, as a predicate ("is empty"), or None if it is."""
        if not isinstance(x, str):
            return "is not a string"
        if not x:
            return "is empty"
        if x != x.strip():
            return "has surrounding whitespace"
        if len(x) > self.max_length:
            return f"has {len(x):,} characters; at most {self.max_length:,} are allowed"
        if len(x.splitlines()) > 1:
            return "has more than one line"
        rejected = (character for character in x if character != "\t" and unicodedata.category(character) in _REFUSED)
        return next((f"contains the character {character!r}, which is not allowed" for character in rejected), None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LineSpace):
            return False
        return (self.max_length, self.words, self.most) == (other.max_length, other.words, other.most)

    def __repr__(self) -> str:
        return f"LineSpace({self.max_length})"
