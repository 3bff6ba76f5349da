"""How much of each object of a scene can be seen, and whether in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vlmgym.sandbox.games.scenes.drawing import Figure
from vlmgym.sandbox.games.scenes.scene import Scene

MEASURED = 80
"""Side in pixels of the image on which is measured; each pixel counts 16 times."""

SEEN, HIDDEN = (255, 255, 255), (0, 0, 0)


class Sight(NamedTuple):
    """What can be seen of an object, neither under others nor cut away.

    Attributes:
        share: Its share of the object's area, 0 to 1.
        whole: Whether it is one piece without a neck narrower than a hundredth of the image's side, so that nobody
            takes it for two objects.
    """

    share: float
    whole: bool


def sights(scene: Scene, crop: float = 0.0) -> Iterator[Sight]:
    """What can be seen of each object, measured on 320 x 320 points on which they are drawn as in the image.

    Args:
        scene: The objects.
        crop: Share of width and height that is cut away at the edges.
    """
    figures = [Figure.of(thing, MEASURED) for thing in scene]
    cut = MEASURED * crop / 2
    for index, figure in enumerate(figures):
        above = [other for other in figures[index + 1 :] if other.meets(figure)]
        inside = min(figure.left, figure.top) >= cut and max(figure.right, figure.bottom) <= MEASURED - cut
        if inside and not above:
            yield Sight(1.0, True)
            continue
        canvas = figure.window(HIDDEN)
        canvas.polygon(figure.outline, SEEN)
        area = canvas.mask(SEEN).count()
        for other in above:
            other.draw(canvas, HIDDEN, HIDDEN)
        for x, y, width, height in (
            (0, 0, MEASURED, cut),
            (0, MEASURED - cut, MEASURED, cut),
            (0, 0, cut, MEASURED),
            (MEASURED - cut, 0, cut, MEASURED),
        ):
            canvas.rectangle(x, y, width, height, HIDDEN)
        left = canvas.mask(SEEN)
        # Without what is thinner than 3 points in a direction, narrow necks are gone as well.
        thick = left
        for step in ((1, 0), (1, 0), (0, 1), (0, 1)):
            thick = thick.overlap_mask(thick, step)
        yield Sight(left.count() / area, all(len(mask.connected_components()) == 1 for mask in (left, thick)))
