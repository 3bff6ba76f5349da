"""Statistics of pairs: the same seed played twice."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from vlmgym.evaluation.summary import wilson

LEVEL = 0.95
"""Of all intervals."""
RESAMPLES = 9999
SEED = 0
_AT_ONCE = 2_000_000
"""Numbers that are drawn at once, so that thousands of pairs fit into memory."""


class PairedDifference(BaseModel):
    """How two means differ over the same episodes.

    Attributes:
        pairs: Number of pairs.
        first: Mean of the first ones.
        second: Mean of the second ones.
        difference: Mean of first - second.
        interval: Confidence interval of that mean, by resampling pairs; None for a single pair.
        method: How the interval was made: `BCa` (Efron 1987), or `percentile` where BCa is not defined, for instance
            because all differences are equal.
    """

    model_config = ConfigDict(frozen=True)

    pairs: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float] | None
    method: Literal["BCa", "percentile"] | None


class Share(BaseModel):
    """How often something was so.

    Attributes:
        count: Number of pairs.
        share: Of all pairs, 0 to 1.
        interval: Wilson's score interval of the share.
    """

    model_config = ConfigDict(frozen=True)

    count: int
    share: float
    interval: tuple[float, float]


def difference(first: float, second: float) -> float:
    """The difference of a pair: first - second, the sign of everything that compares two runs."""
    return first - second


def difference_name(first: str, second: str) -> str:
    """The difference in words, by the labels of the runs."""
    return f"{first} - {second}"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """The mean difference of pairs with a bootstrap interval, the same for the same numbers.

    Args:
        first: At least one number.
        second: As many, in the same order.
    """
    differences = np.array([difference(a, b) for a, b in zip(first, second, strict=True)])
    interval, method = _bootstrap(differences)
    return PairedDifference(
        pairs=len(differences),
        first=math.fsum(first) / len(differences),
        second=math.fsum(second) / len(differences),
        difference=math.fsum(differences) / len(differences),
        interval=interval,
        method=method,
    )


def share(count: int, pairs: int) -> Share:
    """A share of pairs, of which there is at least one."""
    return Share(count=count, share=count / pairs, interval=wilson(count, pairs, LEVEL))


def _bootstrap(
    differences: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[tuple[float, float] | None, Literal["BCa", "percentile"] | None]:
    from scipy.stats import bootstrap  # half a second to import

    if len(differences) < 2:
        return None, None
    same = bool((differences == differences[0]).all())
    methods: list[Literal["BCa", "percentile"]] = ["percentile"] if same else ["BCa", "percentile"]
    for method in methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that BCa is not defined here: then the interval is not a number
            found = bootstrap(
                (differences,),
                np.mean,
                n_resamples=RESAMPLES,
                batch=max(1, _AT_ONCE // len(differences)),
                confidence_level=LEVEL,
                method=method,
                random_state=np.random.default_rng(SEED),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    low, high = sorted((float(found.low), float(found.high)))  # means of equal numbers differ by rounding
    return (low, high), method
