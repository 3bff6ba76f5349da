"""Image classifiers: nearest mean images, and a support vector machine."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import importing
from vlmgym.sandbox.drawing.board import VARIANTS

Seen = NDArray[np.float32]

COMPONENTS = 100
"""Maximum number of principal components of the fitted reader."""
PENALTY = 10.0
"""Regularisation parameter C of the support vector machine."""
HELD_OUT = 4
"""Every n-th image of a kind is held out for the test."""
MARGIN = 1.3
"""Half the distance between two similar mean images, in standard deviations of the noise that makes a reader mistake
10% of the crops of one for the other."""


class TemplateReader:
    """Classifies a crop by the nearest mean image."""

    def __init__(self, seen: Seen, labels: Sequence[str]) -> None:
        self.kinds, kind_of = np.unique(np.array(labels), return_inverse=True)
        counts = np.bincount(kind_of)
        sums = np.zeros((len(self.kinds), seen.shape[1]), dtype=np.float64)
        np.add.at(sums, kind_of, seen)
        self.means = (sums / counts[:, None]).astype(np.float32)

    def among(self, labels: Collection[str]) -> TemplateReader:
        """Return a copy of the reader that chooses only from these labels."""
        chosen = copy(self)
        kept = np.isin(self.kinds, list(labels))
        chosen.kinds, chosen.means = self.kinds[kept], self.means[kept]
        return chosen

    def read(self, seen: Seen) -> list[str]:
        """Label each crop."""
        # Squared distances without the crop's own square, which is the same for all kinds.
        distances = (self.means**2).sum(axis=1) - 2 * seen @ self.means.T
        labels: list[str] = self.kinds[distances.argmin(axis=1)].tolist()
        return labels


def margin_haze(reader: TemplateReader) -> float:
    """Return the standard deviation of noise with which 10% of a kind's crops are mistaken for its most similar kind.

    This holds for a kind at the median distance from its most similar kind.
    """
    means = reader.means
    distances = np.sqrt(((means[:, None] - means[None]) ** 2).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    return float(f"{np.median(distances.min(axis=1)) / 2 / MARGIN:.2g}")


def hazy(seen: Seen, haze: float, rng: np.random.Generator) -> Seen:
    """Add Gaussian noise with standard deviation `haze`."""
    return seen + haze * rng.standard_normal(seen.shape, dtype=np.float32) if haze else seen


def fitted_accuracy(
    seen: Seen, labels: Sequence[str], aspects: bool = False, all_variants: bool = False
) -> tuple[int, int, bool]:
    """Test a reader that was trained on the same level.

    Pixel-identical crops count once. A quarter of the crops of each kind are held out for the test; a kind with a
    single crop is trained and tested on it.

    Args:
        seen: Crops.
        labels: Label of each crop.
        aspects: See `ReadingSpec.aspects`.
        all_variants: See `ReadingSpec.all_variants`.

    Returns:
        Number of correct labels, number of test crops, and whether these are all the crops there can be, because every
        kind has only one crop or all variants were tested.

    Raises:
        UsageError: scikit-learn is not installed.
    """
    images: dict[str, dict[bytes, Seen]] = defaultdict(dict)
    for image, label in zip(seen, labels):
        images[label][image.tobytes()] = image
    single = all(len(different) == 1 for different in images.values())
    folds = range(HELD_OUT if all_variants and not single else 1)
    results = [_fold(images, fold, aspects, single) for fold in folds]
    complete = all_variants and all(len(found) == 1 or len(found) % VARIANTS == 0 for found in images.values())
    return sum(right for right, _ in results), sum(total for _, total in results), single or complete


def _fold(images: Mapping[str, Mapping[bytes, Seen]], fold: int, aspects: bool, single: bool) -> tuple[int, int]:
    """Train without every `HELD_OUT`-th crop of each kind, from index `fold`; test on the crops left out.

    A kind with a single crop is trained and tested on it. Return the numbers of correct and of tested crops.
    """
    train: list[tuple[Seen, str]] = []
    test: list[tuple[Seen, str]] = []
    for label, different in images.items():
        found = [(image, label) for image in different.values()]
        test += found[fold::HELD_OUT]
        train += found if len(found) == 1 else [entry for i, entry in enumerate(found) if i % HELD_OUT != fold]
    if not test:  # no kind has more than `fold` crops
        return 0, 0
    learned, shown = (np.stack([image for image, _ in entries]) for entries in (train, test))
    names, truths = ([label.split() if aspects else [label] for _, label in entries] for entries in (train, test))
    right = np.ones(len(test), dtype=bool)
    for aspect, truth in zip(zip(*names), zip(*truths)):
        read = TemplateReader(learned, aspect).read(shown) if single else _classified(learned, aspect, shown)
        right &= np.array(truth) == np.array(read)
    return int(right.sum()), len(test)


def _classified(learned: Seen, labels: Sequence[str], shown: Seen) -> list[str]:
    with importing("calibrate", "tasks"):
        from sklearn import decomposition, pipeline, svm
    components = min(COMPONENTS, len(learned) - 1, learned.shape[1])
    classifier = pipeline.make_pipeline(decomposition.PCA(components, random_state=0), svm.SVC(C=PENALTY))
    with warnings.catch_warnings():  # many kinds with few crops each are intended
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        read: list[str] = classifier.fit(learned, labels).predict(shown).tolist()
    return read
