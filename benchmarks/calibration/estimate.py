"""Estimates with 95% intervals, and their differences."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vlmgym.statistics import confidence_interval, mean_and_stderr, wilson

NORMAL = 1.96
"""Half-width of a 95% normal interval in standard errors."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or a share with its 95% interval.

    Attributes:
        mean: Measured value.
        low: Lower end of the interval. If all values are equal, `of` and `evenly` set both ends to `mean`.
        high: Upper end of the interval.
        count: Number of values; for a difference, the smaller of its two estimates' counts.
    """

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Estimate the mean of at least one value."""
        mean, _ = mean_and_stderr(values)
        interval = confidence_interval(values, unit_interval=True) if len(set(values)) > 1 else None
        low, high = interval or (mean, mean)
        return cls(mean, low, high, len(values))

    @classmethod
    def share(cls, count: int, of: int) -> Estimate:
        """Estimate the share `count / of`, with Wilson's interval."""
        return cls(count / of, *wilson(count, of), of)

    @classmethod
    def evenly(cls, kinds: Sequence[Sequence[float]], images: Sequence[Sequence[int]]) -> Estimate:
        """Estimate the mean over kinds, weighting each kind equally.

        The interval is normal, with the linearised variance of a cluster sample: values from the same image may be
        correlated, but images are independent.

        Args:
            kinds: Values of each kind; at least one kind and one value each.
            images: Image index of each value, by kind.
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
        """Transform to a logarithmic scale; all values must be positive."""
        return Estimate(math.log(self.mean), math.log(self.low), math.log(self.high), self.count)

    def negative(self) -> Estimate:
        """Flip the sign."""
        return Estimate(-self.mean, -self.high, -self.low, self.count)

    def minus(self, other: Estimate) -> Estimate:
        """Estimate the difference from another estimate, whose samples are independent.

        Its interval follows from the intervals of both estimates, which may be asymmetric (Zou and Donner, Statistics
        in Medicine 27, 2008).
        """
        mean = self.mean - other.mean
        below = math.hypot(self.mean - self.low, other.high - other.mean)
        above = math.hypot(self.high - self.mean, other.mean - other.low)
        return Estimate(mean, mean - below, mean + above, min(self.count, other.count))


def steps(levels: Mapping[int, Estimate]) -> dict[int, Estimate]:
    """Return the decrease from each level to the next, keyed by the harder level."""
    ordered = sorted(levels)
    return {harder: levels[easier].minus(levels[harder]) for easier, harder in pairwise(ordered)}


def paired_steps(levels: Mapping[int, Sequence[float]]) -> dict[int, Estimate]:
    """Like `steps`, for values that are paired across levels."""
    return {
        harder: Estimate.of([a - b for a, b in zip(levels[easier], levels[harder], strict=True)])
        for easier, harder in pairwise(sorted(levels))
    }


def falls(steps: Mapping[int, Estimate]) -> bool:
    """Return True if the intervals of all decreases lie above 0."""
    return all(step.low > 0 for step in steps.values())


def drift(levels: Mapping[int, Estimate], difficulty: Mapping[int, Estimate], centre: int = 3) -> float:
    """Return the largest effect of one difficulty on the other's criterion, relative to the other's own effect on it.

    Args:
        levels: Criterion by level of the difficulty that should not affect it.
        difficulty: Criterion by level of the difficulty that should affect it.
        centre: Level at which both were measured with the same settings.

    Returns:
        The largest absolute interval end of the differences between `levels` and their centre, divided by the absolute
        difference between the lowest and the highest level of `difficulty`; infinity if that difference is 0.
    """
    reach = abs(difficulty[min(difficulty)].mean - difficulty[max(difficulty)].mean)
    ends = [levels[level].minus(levels[centre]) for level in levels if level != centre]
    farthest = max(max(abs(end.low), abs(end.high)) for end in ends)
    return farthest / reach if reach else math.inf
