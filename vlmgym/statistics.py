"""Means, confidence intervals, and paired comparisons of two runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

LEVEL = 0.95
"""Confidence level of all intervals."""
NORMAL_QUANTILE = 1.959963984540054
"""Quantile of the standard normal distribution at 0.5 + LEVEL / 2."""
RESAMPLES = 9999
SEED = 0
_BATCH = 2_000_000
"""Maximum number of values resampled together, to bound memory with thousands of pairs."""


def mean(values: Sequence[float]) -> float | None:
    """Compute the mean; None without values."""
    return math.fsum(values) / len(values) if values else None


def mean_and_stderr(values: Sequence[float]) -> tuple[float, float | None]:
    """Compute the mean and its standard error (sample variance with n - 1); the error is None for a single value."""
    average = math.fsum(values) / len(values)
    if len(values) == 1:
        return average, None
    variance = math.fsum((value - average) ** 2 for value in values) / (len(values) - 1)
    return average, math.sqrt(variance / len(values))


def confidence_interval(values: Sequence[float], *, unit_interval: bool) -> tuple[float, float] | None:
    """Compute the confidence interval of a mean: Wilson for proportions (all values 0 or 1), otherwise Student's t.

    Returns None for fewer than two values, or if all values are equal and not proportions.

    Args:
        values: The sample.
        unit_interval: True if values are within [0, 1] by definition. If False, values that all happen to be 0 or 1
            are not treated as proportions.
    """
    if len(values) < 2:
        return None
    if unit_interval and set(values) <= {0.0, 1.0}:
        return wilson(round(sum(values)), len(values))
    if len(set(values)) == 1:
        return None
    average, error = mean_and_stderr(values)
    margin = _t_quantile(len(values) - 1) * (error or 0.0)
    return average - margin, average + margin


def _t_quantile(freedom: int) -> float:
    """Compute the quantile of Student's t at 0.5 + LEVEL / 2."""
    from scipy.special import stdtrit  # a fifth of a second to import, and not needed for a single episode

    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


def wilson(count: float, total: float) -> tuple[float, float]:
    """Compute the Wilson score interval of `count / total`; `total` must be above 0."""
    p, z = count / total, NORMAL_QUANTILE
    scale = 2 * (total + z**2)
    center = (2 * total * p + z**2) / scale
    margin = z / scale * math.sqrt(4 * total * p * (1 - p) + z**2)
    return (0.0 if count == 0 else center - margin), (1.0 if count == total else center + margin)


class PairedDifference(BaseModel):
    """Difference between two means over the same episodes.

    Attributes:
        pairs: Number of pairs.
        first: Mean of the first run.
        second: Mean of the second run.
        difference: Mean of first - second.
        interval: Bootstrap confidence interval of `difference`: BCa (Efron 1987), or percentiles where it is undefined,
            for example if all differences are equal. None for a single pair.
    """

    model_config = ConfigDict(frozen=True)

    pairs: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float] | None


class Share(BaseModel):
    """A share of all pairs: count, fraction, and Wilson score interval."""

    model_config = ConfigDict(frozen=True)

    count: int
    share: float
    interval: tuple[float, float]


def clustered_share(counts: Sequence[int], totals: Sequence[int]) -> Share:
    """Compute the share sum(counts) / sum(totals) of observations in clusters, such as the turns of episodes.

    Args:
        counts: Number of observations with the property, for each cluster.
        totals: Number of observations in each cluster; at least one must be above 0.
    """
    count = sum(counts)
    return Share(count=count, share=count / sum(totals), interval=clustered_interval(counts, totals))


def clustered_interval(counts: Sequence[float], totals: Sequence[float]) -> tuple[float, float]:
    """Compute the interval of a share of observations in clusters.

    The Wilson interval is that of the effective number of observations: their number over the design effect, which is
    the variance of the ratio of sums between clusters over the variance of as many independent observations, and at
    least 1 (Dean and Pagano, 2015). It also falls by the squared ratio of the normal quantile to that of Student's t,
    because few clusters estimate the variance badly (Korn and Graubard, 1998). Where the effect is undefined, with a
    single cluster or a share of 0 or 1, a whole cluster counts as one observation. Clusters of one are independent.

    Args:
        counts: Observations with the property in each cluster, which need not be whole.
        totals: Observations in each cluster; at least one must be above 0.
    """
    total, clusters = sum(totals), sum(map(bool, totals))
    p = sum(counts) / total
    effective = float(clusters)
    if 1 < clusters < total and 0 < p < 1:
        squares = math.fsum((count - p * size) ** 2 for count, size in zip(counts, totals))
        variance = squares * clusters / (clusters - 1) / total**2
        effective = total / max(1.0, variance * total / (p * (1 - p)))
        effective *= (NORMAL_QUANTILE / _t_quantile(clusters - 1)) ** 2
    return wilson(p * effective, effective)


def difference_name(first: str, second: str) -> str:
    """Return the label of a difference between two labelled runs; all comparisons compute first - second."""
    return f"{first} - {second}"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Compute the mean of first - second over at least one pair, with a deterministic bootstrap interval."""
    differences = np.subtract(first, second, dtype=float)
    return PairedDifference(
        pairs=len(differences),
        first=math.fsum(first) / len(differences),
        second=math.fsum(second) / len(differences),
        difference=math.fsum(differences) / len(differences),
        interval=_bootstrap(differences),
    )


def share(count: int, pairs: int) -> Share:
    """Compute `count` as a share of `pairs`, which must be at least 1."""
    return Share(count=count, share=count / pairs, interval=wilson(count, pairs))


def _bootstrap(differences: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float] | None:
    from scipy.stats import bootstrap  # a second to import, and only needed to compare runs

    if len(differences) < 2:
        return None
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where BCa is undefined, the interval is NaN
            interval = bootstrap(
                (differences,),
                np.mean,
                n_resamples=RESAMPLES,
                batch=max(1, _BATCH // len(differences)),
                confidence_level=LEVEL,
                method=method,
                random_state=np.random.default_rng(SEED),
            ).confidence_interval
        if math.isfinite(interval.low) and math.isfinite(interval.high):
            break
    low, high = sorted((float(interval.low), float(interval.high)))  # rounding may swap the bounds of equal values
    return low, high
