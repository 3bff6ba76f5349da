"""Measure how well readers recognise the images of each level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.reader import Seen, TemplateReader, fitted_accuracy, hazy, margin_haze
from benchmarks.calibration.spec import AnyGame, Crops, Spec
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Difficulty

TRAINING, TESTING, FITTING, HAZE = range(4)
"""Seed streams, so that training and test images differ."""
HAZES = 8
"""Hazy copies per crop when comparing the two difficulties; several copies, so that haze adds little variance."""


@dataclass(frozen=True, slots=True)
class LevelResult:
    """Shares of crops that are read correctly.

    Attributes:
        images: Share per image for the level-1 reader with haze. Seed and haze of an image are the same at every level,
            so that levels can be compared image by image.
        clear: Share per image for the same reader without haze.
        fitted: Share for a reader that was trained on the tested level, without haze.
    """

    images: Sequence[float]
    clear: Sequence[float]
    fitted: Estimate

    @property
    def first(self) -> Estimate:
        """Accuracy of the level-1 reader with haze."""
        return Estimate.of(self.images)


class LevelOneReader:
    """A reader trained on images of perception level 1 and all reasoning levels."""

    def __init__(self, spec: Spec, images: int) -> None:
        """Train the reader.

        Args:
            spec: Game to read.
            images: Number of training images, divided among the reasoning levels.
        """
        self._spec, self._easiest = spec, spec.at(1)
        share = -(-images // len(LEVELS))
        games = [spec.at(1, level, **spec.reading.training_overrides) for level in LEVELS]
        training = [part for game in games for part in crop_images(spec, game, share, TRAINING)]
        self._templates = TemplateReader(*concatenate(training))
        self.haze = margin_haze(self._templates) if spec.reading.haze is None else spec.reading.haze

    @property
    def labels(self) -> set[str]:
        """Labels that the reader knows."""
        return set(self._templates.kinds.tolist())

    def accuracy(
        self, images: Sequence[Crops], only: Collection[str], one_example: bool = False
    ) -> tuple[list[float], list[float]]:
        """Return the share of correctly read crops of each image: a list with haze, and a list without.

        Args:
            images: Crops of the images of the `TESTING` stream, in order.
            only: Labels to choose from, which must include all labels of the crops; ignored with `one_example`.
            one_example: See `ReadingSpec.one_example`; the game must be at reasoning level 3.
        """
        templates = self._templates.among(only)
        blurred: list[float] = []
        clear: list[float] = []
        for number, (every, labels) in enumerate(images):
            reader = self._one_example(number) if one_example else templates
            haze = np.random.default_rng([HAZE, number])
            for shares, seen in ((blurred, hazy(every, self.haze, haze)), (clear, every)):
                shares.append(sum(label == guess for label, guess in zip(labels, reader.read(seen))) / len(labels))
        return blurred, clear

    def shares_through_haze(self, seen: Seen, label: str, only: Collection[str], seed: Sequence[int]) -> list[float]:
        """For each crop, return the share of its hazy copies that are read as `label`.

        There are `HAZES` copies with different haze; without haze, one copy is enough.
        """
        reader, haze, rng = self._templates.among(only), self.haze, np.random.default_rng([HAZE, *seed])
        read = [reader.read(hazy(seen, haze, rng)) for _ in range(HAZES if haze else 1)]
        return [guesses.count(label) / len(guesses) for guesses in zip(*read)]

    def _one_example(self, number: int) -> TemplateReader:
        return TemplateReader(*self._spec.reading.crop(self._easiest, np.random.default_rng([TESTING, number])))


def crop_images(spec: Spec, game: AnyGame, images: int, stream: int) -> list[Crops]:
    """Crop `images` images, drawn with the first seeds of a stream."""
    return [spec.reading.crop(game, np.random.default_rng([stream, number])) for number in range(images)]


def concatenate(parts: Sequence[Crops]) -> Crops:
    """Concatenate the crops of several images."""
    return np.concatenate([seen for seen, _ in parts]), [label for _, labels in parts for label in labels]


@dataclass(frozen=True, slots=True)
class ReadingResults:
    """Results of the readers at all levels of both difficulties.

    Attributes:
        levels: Results by perception level, at reasoning level 3.
        shared: Accuracy of the level-1 reader through haze, by difficulty and level, on the kinds that occur at all
            levels. Only these kinds are possible answers, and all have the same weight, because the number and
            frequency of kinds are not a matter of perception.
        kinds: Mean number of kinds that the level-1 reader chooses from, by perception level.
        common: Number of kinds that occur at all levels.
        haze: Standard deviation of the noise added for the level-1 reader.
    """

    levels: Mapping[int, LevelResult]
    shared: Mapping[Difficulty, Mapping[int, Estimate]]
    kinds: Mapping[int, float]
    common: int
    haze: float


def read_levels(spec: Spec, images: int, progress: Callable[[str], None]) -> ReadingResults:
    """Read images of every level of each difficulty, with the other difficulty at level 3.

    Args:
        spec: Game to read.
        images: Number of test images per level, and of training images.
        progress: Called with the current step.

    Raises:
        UsageError: No kind occurs at all levels, because there are too few images; or scikit-learn is not installed.
    """
    progress("training on level 1")
    reader = LevelOneReader(spec, images)
    common = reader.labels
    levels, kinds = {}, {}
    crops: dict[tuple[Difficulty, int], dict[str, _Crops]] = {}
    for level in LEVELS:
        progress(f"perception {level}")
        game = spec.at(perception=level)
        shown = crop_images(spec, game, images, TESTING)
        crops["perception", level] = found = _by_label(shown)
        common = _seen_everywhere(common, found, spec, images)
        levels[level] = _read_level(spec, game, reader, shown, set(found))
        # With one example per kind, the reader chooses only from the kinds on the board.
        chosen_from = [len(set(labels)) for _, labels in shown] if spec.reading.one_example else [len(found)]
        kinds[level] = sum(chosen_from) / len(chosen_from)
    crops["reasoning", 3] = crops["perception", 3]
    for level in sorted({*LEVELS} - {3}):
        progress(f"reading reasoning {level}")
        crops["reasoning", level] = found = _by_label(crop_images(spec, spec.at(reasoning=level), images, TESTING))
        common = _seen_everywhere(common, found, spec, images)
    shared: dict[Difficulty, dict[int, Estimate]] = {difficulty: {} for difficulty in DIFFICULTIES}
    for (difficulty, level), by_label in crops.items():
        tested = [by_label[label] for label in sorted(common)]
        shares = [
            reader.shares_through_haze(crop.seen, crop.label, common, (level, kind)) for kind, crop in enumerate(tested)
        ]
        shared[difficulty][level] = Estimate.evenly(shares, [crop.images for crop in tested])
    return ReadingResults(levels, shared, kinds, len(common), reader.haze)


def _seen_everywhere(labels: Collection[str], found: Collection[str], spec: Spec, images: int) -> set[str]:
    """Return the common labels; raise `UsageError` if there are none."""
    both = set(labels).intersection(found)
    if not both:
        raise UsageError(f"{images} images are too few: no kind of {spec.reading.unit} occurs at every level")
    return both


def _read_level(
    spec: Spec, game: AnyGame, reader: LevelOneReader, shown: Sequence[Crops], labels: Collection[str]
) -> LevelResult:
    hazy_shares, clear = reader.accuracy(shown, labels, spec.reading.one_example)
    training = concatenate(crop_images(spec, game, len(shown), FITTING))
    right, total, exact = fitted_accuracy(*training, spec.reading.aspects, spec.reading.all_variants)
    fitted = Estimate(right / total, right / total, right / total, total) if exact else Estimate.share(right, total)
    return LevelResult(hazy_shares, clear, fitted)


class _Crops(NamedTuple):
    """All crops with one label, and their image indices."""

    label: str
    seen: Seen
    images: list[int]


def _by_label(images: Sequence[Crops]) -> dict[str, _Crops]:
    seen, labels = concatenate(images)
    number_of = [number for number, (_, shown) in enumerate(images) for _ in shown]
    indices: dict[str, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        indices[label].append(index)
    return {
        label: _Crops(label, seen[found], [number_of[index] for index in found]) for label, found in indices.items()
    }
