"""Scenes in words, one object a line, and how well a written description agrees with a scene."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, Perception
from vlmgym.sandbox.games.scenes.scene import SIZES, Scene, Vocabulary

NEAR = 10
"""How far a told centre may be from the true one in x and in y, in percent of the image's side."""
MOST_TOLD = 200
"""Objects of a description that are compared; more are counted as wrong."""
FORM = "one object a line as size, colour, shape and centre, for instance: large red circle at (42, 31)"
"""How a prompt says what a description looks like."""
PLACES = "x and y in percent of the image inside its frame, from the left and from the top"

NOT_DESCRIBED = "not described"
"""What stands for the description of a photograph."""

_LINE = re.compile(r"[-*]? ?(\w+) (\w+) (\w+) at \(? ?(\d{1,3}) ?%? ?, ?(\d{1,3}) ?%? ?\)?[.,;]?")
"""A line with single spaces: if runs of them matched, there would be too many ways to split each between two `\\s*`."""


class Told(NamedTuple):
    """An object as words tell it; x and y in percent."""

    size: str
    colour: str
    shape: str
    x: int
    y: int


def told(scene: Scene, crop: float = 0.0) -> list[Told]:
    """The objects from the left to the right.

    Args:
        scene: The objects.
        crop: Share of width and height that is cut away at the edges; places are told of what is left.
    """
    objects = [Told(*thing.kind, _percent(thing.x, crop), _percent(thing.y, crop)) for thing in scene]
    return sorted(objects, key=lambda each: (each.x, each.y, each))


def describe_scene(scene: Scene, crop: float = 0.0) -> str:
    """One object a line, from the left to the right: `large red circle at (42, 31)`."""
    return "\n".join(f"{o.size} {o.colour} {o.shape} at ({o.x}, {o.y})" for o in told(scene, crop))


def compare_scenes(truths: Sequence[Sequence[Told]], texts: Sequence[str]) -> Perception:
    """Compare descriptions of images with their scenes; the order of lines does not matter.

    Objects told and true are matched one to one so that the sum of credits is largest. A pair has credit only if the
    told centre is within `NEAR` percent of the true one in x and in y: the share of size, colour and shape that is
    right. `partial` is the sum over the number of true objects, or of lines told where there are more, so that added
    objects cost as much as missing ones. It is `exact` if all credits are 1 and nothing is added.

    Args:
        truths: The true objects of each image.
        texts: What is told of each image.
    """
    from scipy.optimize import linear_sum_assignment  # half a second to import

    credit, cells = 0.0, 0
    for truth, text in zip(truths, texts, strict=True):
        lines = [line for line in text[:LONGEST_PERCEPTION].casefold().splitlines() if line.strip()]
        seen = [read_line(line) for line in lines[:MOST_TOLD]]
        credits = np.array([[_credit(one, other) for other in seen] for one in truth]).reshape(len(truth), len(seen))
        credit += float(credits[linear_sum_assignment(credits, maximize=True)].sum())
        cells += max(len(truth), len(lines))
    partial = credit / cells if cells else 1.0
    return Perception(min(1.0, partial), float(partial > 1 - 1e-9))


def split_sides(text: str) -> tuple[str, str, str]:
    """What a description tells below a line `left:`, below a line `right:`, and above both."""
    sides: dict[str, list[str]] = {"left:": [], "right:": [], "": []}
    side = ""
    for line in text[:LONGEST_PERCEPTION].casefold().splitlines():
        if (heading := line.strip()) in ("left:", "right:"):
            side = heading
        else:
            sides[side].append(line)
    left, right, neither = ("\n".join(lines) for lines in sides.values())
    return left, right, neither


def scene_facts(vocabulary: Vocabulary) -> str:
    """What a prompt tells of scenes."""
    return (
        f"Objects are {' or '.join(SIZES)}, their colour is one of {', '.join(vocabulary.colours)}, and their shape "
        f"one of {', '.join(vocabulary.shapes)}. Objects may be partly covered by others; all of them count. Which is "
        "left, right, above or below is told by their centres."
    )


def read_line(line: str) -> Told | None:
    """The object that a line in lower case tells, None if it is not in the documented form."""
    match = _LINE.fullmatch(" ".join(line.split()))
    if match is None:
        return None
    size, colour, shape, x, y = match.groups()
    return Told(size, colour, shape, int(x), int(y))


def _credit(true: Told, seen: Told | None) -> float:
    if seen is None or abs(true.x - seen.x) > NEAR or abs(true.y - seen.y) > NEAR:
        return 0.0
    return sum(a == b for a, b in zip(true[:3], seen[:3])) / 3


def _percent(thousandths: int, crop: float) -> int:
    """A place in percent of what is left of the image, rounded half up."""
    cut = round(1000 * crop / 2)
    return (200 * (thousandths - cut) + 1000 - 2 * cut) // (2 * (1000 - 2 * cut))
