"""Claims about difficulty levels, checked against the measurements."""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.calibration.estimate import drift, falls, paired_steps, steps
from benchmarks.calibration.formatting import number, percent, written
from benchmarks.calibration.measure import Calibration

FLAT = 0.1
"""Maximum effect of one difficulty on the other difficulty's criterion, relative to the latter's own effect on it."""
READABLE = 0.95
"""Required accuracy of the reader fitted to perception level 4 (lower end of its interval)."""


class Check(NamedTuple):
    """A claim, the measured values, and whether it holds."""

    claim: str
    measured: str
    holds: bool


def checks(calibration: Calibration) -> list[Check]:
    """Check all claims about a game."""
    return [*_reasoning(calibration), *_perception(calibration)]


def _reasoning(calibration: Calibration) -> list[Check]:
    criterion = calibration.spec.criterion
    levels, elsewhere = calibration.criterion, calibration.play_elsewhere
    if criterion.log:
        levels, elsewhere = ({level: value.log() for level, value in v.items()} for v in (levels, elsewhere))
    if criterion.rises:
        levels, elsewhere = ({level: value.negative() for level, value in v.items()} for v in (levels, elsewhere))
    down = steps(levels)
    smallest = min(step.low for step in down.values())
    step = f"{number(smallest)}"
    if criterion.log:
        step = f"a factor of {number(math.exp(smallest))}"
    ends = [written(criterion.measure, calibration.criterion[level]) for level in (1, 5)]
    moved = drift(elsewhere, levels)
    return [
        Check(
            "Reasoning levels get harder",
            f"{criterion.label}: from {ends[0]} to {ends[1]}, each step at least {step}",
            falls(down),
        ),
        Check(
            "Perception does not affect play",
            f"at most {moved:.0%} of the effect of reasoning",
            moved <= FLAT,
        ),
    ]


def _perception(calibration: Calibration) -> list[Check]:
    levels = calibration.first_reader
    down = paired_steps({level: reading.images for level, reading in calibration.readings.levels.items()})
    smallest = min(step.low for step in down.values())
    moved = drift(calibration.readings.shared["reasoning"], calibration.readings.shared["perception"])
    fitted = calibration.readings.levels[4].fitted
    return [
        Check(
            "Perception levels get harder to read",
            f"level-1 reader: from {percent(levels[1])} to {percent(levels[5])}, each step at least "
            f"{100 * smallest:.1f} points",
            falls(down),
        ),
        Check(
            "Reasoning does not affect reading",
            f"at most {moved:.0%} of the effect of perception",
            moved <= FLAT,
        ),
        Check(
            "Perception level 4 stays readable",
            f"fitted reader: {percent(fitted)}",
            fitted.low > READABLE,
        ),
    ]
