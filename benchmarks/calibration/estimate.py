"""Numbers with 95% intervals, and what two of them say about each other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vlmgym.evaluation.statistics import confidence_interval, mean_and_stderr, wilson

NORMAL = 1.96
"""Half the width of a 95% interval of the normal distribution, in standard errors."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or a share with its 95% interval.

    Attributes:
        mean: The value that was measured.
        low: Lower end of the interval; equal to `mean` where every value was the same.
        high: Upper end.
        count: How many values it is the mean of.
    """

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The mean of values, at least one; without an interval where all are the same."""
        mean, _ = mean_and_stderr(values)
        interval = confidence_interval(values, within_one=True) if len(set(values)) > 1 else None
        low, high = interval or (mean, mean)
        return cls(mean, low, high, len(values))

    @classmethod
    def share(cls, count: int, of: int) -> Estimate:
        """The share `count / of` with Wilson's interval."""
        return cls(count / of, *wilson(count, of), of)

    @classmethod
    def evenly(cls, kinds: Sequence[Sequence[float]], images: Sequence[Sequence[int]]) -> Estimate:
        """The mean of the means of several kinds of value, each of which counts as much, however many values it has.

        Its interval is the normal one. Values of one image may be alike, those of different ones are independent: so
        what each image adds to the mean is what varies (the linearised variance of a sample of clusters).

        Args:
            kinds: At least one kind, and at least one value of each.
            images: By kind, the number of the image that each value is from.
        """
        means = [math.fsum(values) / len(values) for values in kinds]
        added: dict[int, float] = defaultdict(float)
        for values, sources, mean in zip(kinds, images, means):
            for value, image in zip(values, sources):
                added[image] += (value - mean) / len(values) / len(kinds)
        many = len(added)
        reach = NORMAL * math.sqrt(many / max(1, many - 1) * math.fsum(value**2 for value in added.values()))
        mean = math.fsum(means) / len(kinds)
        return cls(mean, mean - reach, mean + reach, sum(map(len, kinds)))

    def log(self) -> Estimate:
        """The same on a logarithmic scale; all of it is above 0."""
        return Estimate(math.log(self.mean), math.log(self.low), math.log(self.high), self.count)

    def negative(self) -> Estimate:
        """The same with the other sign, so that what rises falls."""
        return Estimate(-self.mean, -self.high, -self.low, self.count)

    def less(self, other: Estimate) -> Estimate:
        """The difference to another estimate from other samples.

        Its interval is recovered from both intervals, which need not be symmetric (Zou and Donner, Statistics in
        Medicine 27, 2008).
        """
        mean = self.mean - other.mean
        below = math.hypot(self.mean - self.low, other.high - other.mean)
        above = math.hypot(self.high - self.mean, other.mean - other.low)
        return Estimate(mean, mean - below, mean + above, min(self.count, other.count))


def steps(levels: Mapping[int, Estimate]) -> dict[int, Estimate]:
    """By how much each level lies below the one before it, by the number of the harder one."""
    ordered = sorted(levels)
    return {harder: levels[easier].less(levels[harder]) for easier, harder in pairwise(ordered)}


def paired_steps(levels: Mapping[int, Sequence[float]]) -> dict[int, Estimate]:
    """As `steps`, where the values of all levels belong together one by one."""
    return {
        harder: Estimate.of([a - b for a, b in zip(levels[easier], levels[harder], strict=True)])
        for easier, harder in pairwise(sorted(levels))
    }


def falls(steps: Mapping[int, Estimate]) -> bool:
    """Whether every step down is larger than 0 with its whole interval."""
    return all(step.low > 0 for step in steps.values())


def drift(levels: Mapping[int, Estimate], dial: Mapping[int, Estimate], centre: int = 3) -> float:
    """How far levels may lie from the middle one, over what the dial that is meant to move them does from end to end.

    Args:
        levels: The criterion at the levels of the other dial.
        dial: The criterion at the levels of its own dial.
        centre: The level that both have in common.

    Returns:
        The farthest end of any difference's interval, as a share of the distance between the ends of `dial`.
    """
    reach = abs(dial[min(dial)].mean - dial[max(dial)].mean)
    ends = [levels[level].less(levels[centre]) for level in levels if level != centre]
    farthest = max(max(abs(end.low), abs(end.high)) for end in ends)
    return farthest / reach if reach else math.inf
