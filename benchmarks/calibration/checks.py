"""What the levels of a game are to be, and whether that was found."""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.calibration.estimate import drift, falls, paired_steps, steps
from benchmarks.calibration.formatting import number, percent, written
from benchmarks.calibration.measure import Calibration

FLAT = 0.1
"""How far one dial may move what the other is judged by, as a share of what that dial does itself."""
READABLE = 0.95
"""What a fitted reader reads of level 4, at least."""


class Check(NamedTuple):
    """A claim about the levels, the measurement, and whether it holds."""

    words: str
    measured: str
    holds: bool


def checks(found: Calibration) -> list[Check]:
    """Check all claims about a game."""
    return [*_reasoning(found), *_perception(found)]


def _reasoning(found: Calibration) -> list[Check]:
    criterion = found.spec.criterion
    levels, elsewhere = found.criterion, found.play_elsewhere
    if criterion.log:
        levels, elsewhere = ({level: value.log() for level, value in v.items()} for v in (levels, elsewhere))
    if criterion.rises:
        levels, elsewhere = ({level: value.negative() for level, value in v.items()} for v in (levels, elsewhere))
    down = steps(levels)
    smallest = min(step.low for step in down.values())
    step = f"by {number(smallest)} or more"
    if criterion.log:
        step = f"by a factor of {number(math.exp(smallest))} or more"
    ends = [written(criterion.measure, found.criterion[level]) for level in (1, 5)]
    moved = drift(elsewhere, levels)
    return [
        Check(
            "Each level of reasoning is harder than the one before",
            f"{criterion.label}: from {ends[0]} to {ends[1]}, at every step {step}",
            falls(down),
        ),
        Check(
            "The perception dial leaves play as it is",
            f"it moves the same from level 3 by {moved:.0%} or less of what the reasoning dial does from 1 to 5",
            moved <= FLAT,
        ),
    ]


def _perception(found: Calibration) -> list[Check]:
    levels = found.first_reader
    down = paired_steps({level: reading.images for level, reading in found.sighting.levels.items()})
    smallest = min(step.low for step in down.values())
    moved = drift(found.sighting.alike["reasoning"], found.sighting.alike["perception"])
    fitted = found.sighting.levels[4].fitted
    return [
        Check(
            "Each level of perception is harder to read than the one before",
            f"the reader of level 1 falls from {percent(levels[1])} to {percent(levels[5])}, at every step by "
            f"{100 * smallest:.1f} points or more",
            falls(down),
        ),
        Check(
            "The reasoning dial leaves reading as it is",
            f"of the kinds that all levels show, it moves what that reader reads from level 3 by {moved:.0%} or less "
            "of what the perception dial does from 1 to 5",
            moved <= FLAT,
        ),
        Check(
            f"Nothing becomes unreadable: a reader fitted to level 4 reads over {READABLE:.0%} of it",
            percent(fitted),
            fitted.low > READABLE,
        ),
    ]
