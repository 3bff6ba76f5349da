"""Visibility of objects in a scene."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vlmgym.sandbox.games.scenes.drawing import Figure
from vlmgym.sandbox.games.scenes.scene import Scene

RESOLUTION = 80
"""Side in pixels of the image that is measured, before supersampling by 4 in each direction."""

VISIBLE, HIDDEN = (255, 255, 255), (0, 0, 0)


class Visibility(NamedTuple):
    """The share of an object that is neither covered nor cropped.

    It is `connected` if it is one piece without a neck narrower than 1% of the image's side, so that it cannot be
    mistaken for two objects.
    """

    share: float
    connected: bool


def measure_visibility(scene: Scene, crop: float = 0.0) -> Iterator[Visibility]:
    """Measure the visibility of each object by drawing the scene on 320 x 320 points."""
    figures = [Figure.of(item, RESOLUTION) for item in scene]
    cut = RESOLUTION * crop / 2
    for index, figure in enumerate(figures):
        above = [other for other in figures[index + 1 :] if other.overlaps(figure)]
        inside = min(figure.left, figure.top) >= cut and max(figure.right, figure.bottom) <= RESOLUTION - cut
        if inside and not above:
            yield Visibility(1.0, True)
            continue
        canvas = figure.canvas(HIDDEN)
        canvas.polygon(figure.outline, VISIBLE)
        area = canvas.mask(VISIBLE).count()
        for other in above:
            other.draw(canvas, HIDDEN, HIDDEN)
        for x, y, width, height in (
            (0, 0, RESOLUTION, cut),
            (0, RESOLUTION - cut, RESOLUTION, cut),
            (0, 0, cut, RESOLUTION),
            (RESOLUTION - cut, 0, cut, RESOLUTION),
        ):
            canvas.rectangle(x, y, width, height, HIDDEN)
        left = canvas.mask(VISIBLE)
        thick = left
        for step in ((1, 0), (1, 0), (0, 1), (0, 1)):  # erode, which removes necks thinner than 3 points
            thick = thick.overlap_mask(thick, step)
        yield Visibility(left.count() / area, all(len(mask.connected_components()) == 1 for mask in (left, thick)))
