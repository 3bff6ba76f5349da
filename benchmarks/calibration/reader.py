"""Readers that see pixels only: nearest mean images for what level 1 taught, support vectors for a level itself."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.datasets.extra import library

Seen = NDArray[np.float32]

COMPONENTS = 100
"""Principal components that the fitted reader looks at, at most."""
PENALTY = 10.0
"""C of its support vector machine."""
HELD_OUT = 4
"""Every so many images of a kind the fitted reader is tested on, and has not seen."""


class TemplateReader:
    """Names a cut-out by the mean image of each kind that is nearest to it."""

    def __init__(self, seen: Seen, words: Sequence[str]) -> None:
        self.kinds, kind_of = np.unique(np.array(words), return_inverse=True)
        counts = np.bincount(kind_of)
        sums = np.zeros((len(self.kinds), seen.shape[1]), dtype=np.float64)
        np.add.at(sums, kind_of, seen)
        self._means = (sums / counts[:, None]).astype(np.float32)

    def among(self, words: Collection[str]) -> TemplateReader:
        """The reader that is told that there is nothing but these words."""
        chosen = copy(self)
        kept = np.isin(self.kinds, list(words))
        chosen.kinds, chosen._means = self.kinds[kept], self._means[kept]
        return chosen

    def read(self, seen: Seen) -> list[str]:
        """What is in each cut-out."""
        # The cut-out's own square is the same for all kinds.
        distances = (self._means**2).sum(axis=1) - 2 * seen @ self._means.T
        words: list[str] = self.kinds[distances.argmin(axis=1)].tolist()
        return words


def hazy(seen: Seen, haze: float, rng: np.random.Generator) -> Seen:
    """Cut-outs through noise of a standard deviation."""
    return seen + haze * rng.standard_normal(seen.shape, dtype=np.float32) if haze else seen


def fitted_accuracy(seen: Seen, words: Sequence[str], aspects: bool = False) -> tuple[int, int, bool]:
    """How much of a level a reader reads that was trained on the level itself.

    An image of a tile that comes again pixel by pixel counts once. A quarter of the images of each kind are kept for
    the test; a kind that has one image only is trained and tested on it.

    Args:
        seen: The cut-outs.
        words: What is in each.
        aspects: See `Sight.aspects`.

    Returns:
        How many it names rightly, of how many, and whether every kind has one image only.

    Raises:
        UsageError: scikit-learn is not installed.
    """
    images: dict[str, dict[bytes, Seen]] = defaultdict(dict)
    for image, word in zip(seen, words):
        images[word][image.tobytes()] = image
    train: list[tuple[Seen, str]] = []
    test: list[tuple[Seen, str]] = []
    for word, different in images.items():
        found = [(image, word) for image in different.values()]
        test += found[::HELD_OUT]
        train += found if len(found) == 1 else [entry for i, entry in enumerate(found) if i % HELD_OUT]
    learned, shown = (np.stack([image for image, _ in entries]) for entries in (train, test))
    names, truths = ([word.split() if aspects else [word] for _, word in entries] for entries in (train, test))
    single = all(len(different) == 1 for different in images.values())
    right = np.ones(len(test), dtype=bool)
    for aspect, truth in zip(zip(*names), zip(*truths)):
        read = TemplateReader(learned, aspect).read(shown) if single else _classified(learned, aspect, shown)
        right &= np.array(truth) == np.array(read)
    return int(right.sum()), len(test), single


def _classified(learned: Seen, words: Sequence[str], shown: Seen) -> list[str]:
    decomposition, pipeline, svm = (
        library(f"sklearn.{part}", "calibrate", "tasks") for part in ("decomposition", "pipeline", "svm")
    )
    components = min(COMPONENTS, len(learned) - 1, learned.shape[1])
    classifier = pipeline.make_pipeline(decomposition.PCA(components, random_state=0), svm.SVC(C=PENALTY))
    with warnings.catch_warnings():  # many kinds with few images each are meant
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        read: list[str] = classifier.fit(learned, words).predict(shown).tolist()
    return read
