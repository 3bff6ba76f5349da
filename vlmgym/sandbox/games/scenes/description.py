"""Text descriptions of scenes, one object per line, and scoring of models' descriptions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, Perception
from vlmgym.sandbox.games.scenes.scene import SIZES, Scene, Vocabulary

TOLERANCE = 10
"""Maximum error in a centre's x and y that still earns credit, in percent of the image's side."""
MAX_LINES = 200
"""Maximum number of lines of a description that are matched; further lines only lower the score."""
LINE_FORMAT = (
    "one per line, for example: large red circle at (42, 31), where x and y are percentages of the width and height "
    "inside the frame, from the top left corner"
)
"""Format of a description in prompts."""
NOT_DESCRIBED = "not described"
"""Description of the user's own images."""

_LINE = re.compile(r"[-*]? ?(\w+) (\w+) (\w+) at \(? ?(\d{1,3}) ?%? ?, ?(\d{1,3}) ?%? ?\)?[.,;]?")
"""Matches lines without repeated spaces; `\\s*` would backtrack excessively on long runs of them."""


class ObjectDescription(NamedTuple):
    """Text description of an object; x and y are percentages."""

    size: str
    colour: str
    shape: str
    x: int
    y: int


def object_descriptions(scene: Scene, crop: float = 0.0) -> list[ObjectDescription]:
    """Describe the objects from left to right; coordinates are relative to the cropped image."""
    objects = [ObjectDescription(*item.kind, _percent(item.x, crop), _percent(item.y, crop)) for item in scene]
    return sorted(objects, key=lambda each: (each.x, each.y, each))


def describe_scene(scene: Scene, crop: float = 0.0) -> str:
    """Describe a scene from left to right with one object per line, as in `large red circle at (42, 31)`."""
    return "\n".join(f"{o.size} {o.colour} {o.shape} at ({o.x}, {o.y})" for o in object_descriptions(scene, crop))


def compare_descriptions(truths: Sequence[Sequence[ObjectDescription]], texts: Sequence[str]) -> Perception:
    """Score descriptions of images against their scenes. The order of lines does not matter.

    Lines are matched one-to-one to objects so as to maximise the total credit. A pair whose centres differ by at
    most `TOLERANCE` in x and in y earns the fraction of size, colour and shape that is correct; other pairs earn
    nothing. `partial` is the total credit divided by the sum of max(objects, lines) over the images, so extra lines
    cost the same as missing lines. `exact` requires full credit and no extra lines.
    """
    from scipy.optimize import linear_sum_assignment  # takes half a second to import

    credit, count = 0.0, 0
    for truth, text in zip(truths, texts, strict=True):
        lines = [line for line in text[:LONGEST_PERCEPTION].casefold().splitlines() if line.strip()]
        seen = [parse_line(line) for line in lines[:MAX_LINES]]
        credits = np.array([[_credit(one, other) for other in seen] for one in truth]).reshape(len(truth), len(seen))
        credit += float(credits[linear_sum_assignment(credits, maximize=True)].sum())
        count += max(len(truth), len(lines))
    partial = credit / count if count else 1.0
    return Perception(min(1.0, partial), float(partial > 1 - 1e-9))


def split_sides(text: str) -> tuple[str, str, str]:
    """Return the lines after a heading `left:`, the lines after `right:`, and the lines before any heading."""
    sides: dict[str, list[str]] = {"left:": [], "right:": [], "": []}
    side = ""
    for line in text[:LONGEST_PERCEPTION].casefold().splitlines():
        if (heading := line.strip()) in ("left:", "right:"):
            side = heading
        else:
            sides[side].append(line)
    left, right, neither = ("\n".join(lines) for lines in sides.values())
    return left, right, neither


def scene_prompt(vocabulary: Vocabulary) -> str:
    """Return the part of a prompt that explains generated scenes."""
    return (
        f"Each object is {' or '.join(SIZES)}. Its colour is one of {', '.join(vocabulary.colours)}. Its shape is one "
        f"of {', '.join(vocabulary.shapes)}. Objects may be partly covered by others; count them too. "
        "Left, right, above and below refer to the centres of objects."
    )


def parse_line(line: str) -> ObjectDescription | None:
    """Parse a lower-case line of a description; None if it is not in the documented format."""
    match = _LINE.fullmatch(" ".join(line.split()))
    if match is None:
        return None
    size, colour, shape, x, y = match.groups()
    return ObjectDescription(size, colour, shape, int(x), int(y))


def _credit(true: ObjectDescription, seen: ObjectDescription | None) -> float:
    if seen is None or abs(true.x - seen.x) > TOLERANCE or abs(true.y - seen.y) > TOLERANCE:
        return 0.0
    return sum(a == b for a, b in zip(true[:3], seen[:3])) / 3


def _percent(thousandths: int, crop: float) -> int:
    """Convert a coordinate to percent of the cropped image's side, rounded half up."""
    cut = round(1000 * crop / 2)
    return (200 * (thousandths - cut) + 1000 - 2 * cut) // (2 * (1000 - 2 * cut))
