"""How well the images of a level are read: by a reader of level 1, through haze and without, and by a fitted one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.reader import Seen, TemplateReader, fitted_accuracy, hazy
from benchmarks.calibration.spec import AnyGame, Crops, Spec
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Dial

TRAINING, TESTING, FITTING, HAZE = range(4)
"""Streams of chance, so that what is learned and what is tested are other images."""
HAZES = 8
"""How often each cut-out is seen through haze where the two difficulties are compared, so that haze adds little
doubt."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Shares of cut-outs that are read rightly.

    Attributes:
        images: Of each image, by the reader of level 1, through haze. A number stands for the same seed and the
            same haze at every level, so that levels are compared image by image.
        clear: Likewise, by the same reader without haze.
        fitted: By a reader that learned from the level itself, without haze.
    """

    images: Sequence[float]
    clear: Sequence[float]
    fitted: Estimate

    @property
    def first(self) -> Estimate:
        """By the reader of level 1, through haze."""
        return Estimate.of(self.images)


class FirstReader:
    """The reader of level 1 of perception; it has seen the boards of all levels of reasoning."""

    def __init__(self, spec: Spec, images: int) -> None:
        """Learn.

        Args:
            spec: What is read.
            images: How many images it learns from, at all levels of reasoning together.
        """
        self._spec, self._easiest = spec, spec.at(1)
        share = -(-images // len(LEVELS))
        schools = [spec.at(1, level, **spec.sight.schooling) for level in LEVELS]
        lessons = [part for game in schools for part in cut_many(spec, game, share, TRAINING)]
        self._taught = TemplateReader(*together(lessons))

    @property
    def words(self) -> set[str]:
        """What it has learned to see."""
        return set(self._taught.kinds.tolist())

    def accuracy(
        self, images: Sequence[Crops], only: Collection[str], one_example: bool = False
    ) -> tuple[list[float], list[float]]:
        """The share of each image that it reads rightly, through haze and without.

        Args:
            images: Cut-outs of the images of the `TESTING` stream, in order.
            only: Words that it chooses from, all that the images show among them.
            one_example: See `Sight.one_example`; the game is at level 3 of reasoning.
        """
        told = self._taught.among(only)
        blurred: list[float] = []
        clear: list[float] = []
        for number, (every, words) in enumerate(images):
            reader = self._one_example(number) if one_example else told
            haze = np.random.default_rng([HAZE, number])
            for shares, seen in ((blurred, hazy(every, self._spec.sight.haze, haze)), (clear, every)):
                shares.append(sum(word == said for word, said in zip(words, reader.read(seen))) / len(words))
        return blurred, clear

    def shares_through_haze(self, seen: Seen, word: str, only: Collection[str], seed: Sequence[int]) -> list[float]:
        """Of cut-outs that all show one word, how often each is read so, seen `HAZES` times through haze, if any."""
        told, haze, rng = self._taught.among(only), self._spec.sight.haze, np.random.default_rng([HAZE, *seed])
        read = [told.read(hazy(seen, haze, rng)) for _ in range(HAZES if haze else 1)]
        return [said.count(word) / len(said) for said in zip(*read)]

    def _one_example(self, number: int) -> TemplateReader:
        return TemplateReader(*self._spec.sight.cut(self._easiest, np.random.default_rng([TESTING, number])))


def cut_many(spec: Spec, game: AnyGame, images: int, stream: int) -> list[Crops]:
    """The cut-outs of so many images."""
    return [spec.sight.cut(game, np.random.default_rng([stream, number])) for number in range(images)]


def together(parts: Sequence[Crops]) -> Crops:
    """The cut-outs of several images as one."""
    return np.concatenate([seen for seen, _ in parts]), [word for _, words in parts for word in words]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What readers see of all levels of both difficulties.

    Attributes:
        levels: By level of perception, at level 3 of reasoning.
        alike: What the reader of level 1 reads of both difficulties through haze, measured alike: only what all
        these levels
            show and it has learned, with that alone to choose from, and each kind counted as much. That a level has
            more kinds of tile than another, or other ones more often, is no matter of looks.
        kinds: From how many kinds the reader of level 1 has to choose, at each level of perception, in the mean.
        common: How many kinds all these levels show.
    """

    levels: Mapping[int, Reading]
    alike: Mapping[Dial, Mapping[int, Estimate]]
    kinds: Mapping[int, float]
    common: int


def read_dials(spec: Spec, images: int, tell: Callable[[str], None]) -> Sighting:
    """Read every level of each dial, the other one at level 3.

    Args:
        spec: What is read.
        images: How many images of each level, and as many again where a reader learns.
        tell: Is told what is under way.

    Raises:
        UsageError: The images are so few that no kind is seen on all levels; or scikit-learn is not installed.
    """
    tell("learning to read level 1")
    reader = FirstReader(spec, images)
    common = reader.words
    levels, kinds = {}, {}
    cuts: dict[tuple[Dial, int], dict[str, _Cuts]] = {}
    for level in LEVELS:
        tell(f"perception {level}")
        game = spec.at(perception=level)
        shown = cut_many(spec, game, images, TESTING)
        cuts["perception", level] = found = _by_word(shown)
        common = _seen_everywhere(common, found, spec, images)
        levels[level] = _read_level(spec, game, reader, shown, set(found))
        # A reader with one example of each kind on a board chooses from those on it.
        chosen_from = [len(set(words)) for _, words in shown] if spec.sight.one_example else [len(found)]
        kinds[level] = sum(chosen_from) / len(chosen_from)
    cuts["reasoning", 3] = cuts["perception", 3]
    for level in sorted({*LEVELS} - {3}):
        tell(f"reading reasoning {level}")
        cuts["reasoning", level] = found = _by_word(cut_many(spec, spec.at(reasoning=level), images, TESTING))
        common = _seen_everywhere(common, found, spec, images)
    alike: dict[Dial, dict[int, Estimate]] = {dial: {} for dial in DIFFICULTIES}
    for (dial, level), by_word in cuts.items():
        asked = [by_word[word] for word in sorted(common)]
        shares = [
            reader.shares_through_haze(cut.seen, cut.word, common, (level, kind)) for kind, cut in enumerate(asked)
        ]
        alike[dial][level] = Estimate.evenly(shares, [cut.images for cut in asked])
    return Sighting(levels, alike, kinds, len(common))


def _seen_everywhere(words: Collection[str], found: Collection[str], spec: Spec, images: int) -> set[str]:
    """The words that are found, too; there are some, or no reader could be asked."""
    both = set(words).intersection(found)
    if not both:
        raise UsageError(f"{images} images are too few: they show no {spec.sight.words} that every level has")
    return both


def _read_level(
    spec: Spec, game: AnyGame, reader: FirstReader, shown: Sequence[Crops], words: Collection[str]
) -> Reading:
    hazy_shares, clear = reader.accuracy(shown, words, spec.sight.one_example)
    lessons = together(cut_many(spec, game, len(shown), FITTING))
    right, total, exact = fitted_accuracy(*lessons, spec.sight.aspects)
    fitted = Estimate(right / total, right / total, right / total, total) if exact else Estimate.share(right, total)
    return Reading(hazy_shares, clear, fitted)


class _Cuts(NamedTuple):
    """All cut-outs that show one word, and of which image each is."""

    word: str
    seen: Seen
    images: list[int]


def _by_word(images: Sequence[Crops]) -> dict[str, _Cuts]:
    seen, words = together(images)
    number_of = [number for number, (_, shown) in enumerate(images) for _ in shown]
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    return {word: _Cuts(word, seen[found], [number_of[place] for place in found]) for word, found in places.items()}
