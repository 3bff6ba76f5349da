"""Spaces that Gymnasium does not have: images, and lines of text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

_REFUSED = ("Cc", "Cs")
"""Unicode's categories of control characters and of surrogates."""


class ImageSpace(spaces.Box):
    """`Box(0, 255, shape, uint8)` whose bounds take no memory, so that a space of thousands of images is free."""

    def __init__(self, shape: tuple[int, ...], seed: int | np.random.Generator | None = None) -> None:
        """All uint8 arrays of a shape, for instance (height, width, 3)."""
        super().__init__(0, 255, (1,), np.uint8, seed)
        self._shape = tuple(shape)
        self.low, self.high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)
        self.bounded_below = np.broadcast_to(self.bounded_below, shape)
        self.bounded_above = np.broadcast_to(self.bounded_above, shape)

    def sample(self, mask: None = None, probability: None = None) -> NDArray[Any]:
        """Uniform noise."""
        return self.np_random.integers(0, 256, self.shape, np.uint8)

    def contains(self, x: Any) -> bool:
        """Whether something is a uint8 array of this shape."""
        return isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == np.uint8

    def __eq__(self, other: object) -> bool:
        """Equal to any `Box` with the same bounds."""
        return self.shape == other.shape if isinstance(other, ImageSpace) else super().__eq__(other)

    def __deepcopy__(self, memo: dict[int, Any]) -> ImageSpace:
        """A space with its own chance, in the same state."""
        copy = ImageSpace(self.shape)
        if self._np_random is not None:
            copy._np_random = np.random.default_rng(0)
            copy._np_random.bit_generator.state = self._np_random.bit_generator.state
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageSpace, (self.shape, self._np_random)


class LineSpace(spaces.Text):
    """One line of text without blanks around it. A sample is a list of words that make sense.

    Any characters but those that break a line, control characters other than the tab, and halves of surrogate pairs.
    """

    def __init__(
        self, longest: int, words: Sequence[str], most: int = 1, seed: int | np.random.Generator | None = None
    ) -> None:
        """All lines of at most so many characters.

        Args:
            longest: Characters of a line, at most.
            words: What samples are made of, at least one: lines themselves.
            most: Words of a sample, at most; with commas between them.
            seed: Of the samples.
        """
        super().__init__(longest, min_length=1, seed=seed)
        self.words, self.most = tuple(words), min(most, len(words))

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """1 to `most` different words: each number, and each word, as likely."""
        count = int(self.np_random.integers(1, self.most + 1))
        return ", ".join(self.words[int(i)] for i in self.np_random.choice(len(self.words), count, replace=False))

    def contains(self, x: Any) -> bool:
        """Whether something is such a line."""
        return self.fault(x) is None

    def fault(self, x: Any) -> str | None:
        """Why something is no such line, as a predicate ("is empty"); None: it is one."""
        if not isinstance(x, str):
            return "is not a text"
        if not x:
            return "is empty"
        if x != x.strip():
            return "has blanks around it"
        if len(x) > self.max_length:
            return f"has {len(x):,} characters, and at most {self.max_length:,} are accepted"
        if len(x.splitlines()) > 1:
            return "has several lines"
        refused = (character for character in x if character != "\t" and unicodedata.category(character) in _REFUSED)
        return next((f"has the character {character!r}, which is not accepted" for character in refused), None)

    def __eq__(self, other: object) -> bool:
        """Equal to one with the same lines and the same samples."""
        if not isinstance(other, LineSpace):
            return False
        return (self.max_length, self.words, self.most) == (other.max_length, other.words, other.most)

    def __repr__(self) -> str:
        return f"LineSpace({self.max_length})"
