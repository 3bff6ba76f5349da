"""How well the pictures of a level are read: by a reader of level 1, through haze and without, and by a fitted one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from vlmgym.calibration.estimate import Estimate
from vlmgym.calibration.reader import Seen, TemplateReader, fitted_accuracy, hazy
from vlmgym.calibration.subject import AnyGame, Crops, Subject
from vlmgym.errors import UsageError
from vlmgym.sandbox.config import LEVELS

TRAINING, TESTING, FITTING, HAZE = range(4)
"""Streams of chance, so that what is learned and what is tested are other pictures."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Shares of cut-outs that are read rightly.

    Attributes:
        pictures: Of each picture, by the reader of level 1, through haze. A number stands for the same seed and the
            same haze at every level, so that levels are compared picture by picture.
        clear: By the same reader without haze.
        fitted: By a reader that learned from the level itself, without haze.
    """

    pictures: Sequence[float]
    clear: Estimate
    fitted: Estimate

    @property
    def first(self) -> Estimate:
        """By the reader of level 1, through haze."""
        return Estimate.of(self.pictures)


class FirstReader:
    """The reader of level 1 of perception; it has seen the boards of all levels of reasoning."""

    def __init__(self, subject: Subject, pictures: int) -> None:
        """Learn.

        Args:
            subject: What is read.
            pictures: How many pictures it learns from, at all levels of reasoning together.
        """
        self._subject, self._easiest = subject, subject.at(1)
        share = -(-pictures // len(LEVELS))
        schools = [subject.at(1, level, **subject.sight.schooling) for level in LEVELS]
        lessons = [part for game in schools for part in cut_many(subject, game, share, TRAINING)]
        self._taught = TemplateReader(*together(lessons))

    @property
    def words(self) -> set[str]:
        """What it has learned to see."""
        return set(self._taught.kinds.tolist())

    def accuracy(
        self, pictures: Sequence[Crops], only: Collection[str], one_example: bool = False
    ) -> tuple[list[float], Estimate]:
        """The share of each picture that it reads rightly through haze, and of all without.

        Args:
            pictures: Cut-outs of the pictures of the `TESTING` stream, in order.
            only: Words that it chooses from, all that the pictures show among them.
            one_example: See `Sight.one_example`; the game is at level 3 of reasoning.
        """
        told, shares, right, total = self._taught.among(only), [], 0, 0
        for number, (every, words) in enumerate(pictures):
            reader = self._one_example(number) if one_example else told
            haze = np.random.default_rng([HAZE, number])
            blurred, clear = (
                sum(word == said for word, said in zip(words, reader.read(seen)))
                for seen in (hazy(every, self._subject.sight.haze, haze), every)
            )
            shares.append(blurred / len(words))
            right, total = right + clear, total + len(words)
        return shares, Estimate.share(right, total)

    def through_haze(self, seen: Seen, only: Collection[str], seed: int) -> list[str]:
        """What it reads through haze of its own seed, choosing from some words."""
        haze = np.random.default_rng([HAZE, seed])
        return self._taught.among(only).read(hazy(seen, self._subject.sight.haze, haze))

    def _one_example(self, number: int) -> TemplateReader:
        return TemplateReader(*self._subject.sight.cut(self._easiest, np.random.default_rng([TESTING, number])))


def cut_many(subject: Subject, game: AnyGame, pictures: int, stream: int) -> list[Crops]:
    """The cut-outs of so many pictures."""
    return [subject.sight.cut(game, np.random.default_rng([stream, number])) for number in range(pictures)]


def together(parts: Sequence[Crops]) -> Crops:
    """The cut-outs of several pictures as one."""
    return np.concatenate([seen for seen, _ in parts]), [word for _, words in parts for word in words]


def read_level(subject: Subject, reader: FirstReader, level: int, pictures: int) -> Reading:
    """How a level of perception is read, at level 3 of reasoning."""
    game = subject.at(perception=level)
    shown = cut_many(subject, game, pictures, TESTING)
    pictures_read, clear = reader.accuracy(shown, _words(shown), subject.sight.one_example)
    right, total, exact = fitted_accuracy(*together(cut_many(subject, game, pictures, FITTING)), subject.sight.aspects)
    fitted = Estimate(right / total, right / total, right / total, total) if exact else Estimate.share(right, total)
    return Reading(pictures_read, clear, fitted)


def read_other_dial(subject: Subject, reader: FirstReader, pictures: int) -> dict[int, Estimate]:
    """What the reader of level 1 reads by level of reasoning, at level 3 of perception, through haze.

    Counted is only what all these levels show and the reader has learned, and everything as much: that a level has more
    kinds of tile than another, or other ones more often, is no matter of looks.

    Raises:
        UsageError: The pictures are so few that this is nothing.
    """
    shown = {level: _by_word(cut_many(subject, subject.at(reasoning=level), pictures, TESTING)) for level in LEVELS}
    common = sorted(reader.words.intersection(*shown.values()))
    if not common:
        raise UsageError(f"{pictures} pictures are too few: they show no {subject.sight.words} that every level has")
    reading = {}
    for level, cuts in shown.items():
        names = [word for word in common for _ in cuts[word]]
        read = reader.through_haze(np.concatenate([cuts[word] for word in common]), common, level)
        right = Counter(name for said, name in zip(read, names) if said == name)
        reading[level] = Estimate.evenly([(right[word], len(cuts[word])) for word in common])
    return reading


def _words(pictures: Sequence[Crops]) -> set[str]:
    return {word for _, words in pictures for word in words}


def _by_word(pictures: Sequence[Crops]) -> dict[str, Seen]:
    seen, words = together(pictures)
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word].append(place)
    return {word: seen[found] for word, found in places.items()}
