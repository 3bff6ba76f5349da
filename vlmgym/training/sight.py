"""Does the model in training see its images? A check of the forward pass, the same for all trainers.

Every `SIGHT_INTERVAL` steps, the log-probabilities of some responses are computed again with other images: those of
another prompt or, under TRL and verl, inverted ones. Images that are lost on the way to the model leave
all of them unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from vlmgym.training.algorithm import TrainingError

SIGHT_INTERVAL = 20
"""Steps between checks; the first is in the first step."""
MAX_RESPONSES = 8
"""Maximum number of responses in a check."""
BLIND = 1e-6
"""Largest change of a response's log-probability, in nats, that is no change."""


def image_swaps(shapes: Sequence[Hashable], contents: Sequence[Hashable]) -> dict[int, int]:
    """Pair rows with rows that have other images of the same shapes.

    Args:
        shapes: Number and shapes of each row's images.
        contents: Identity of each row's pixels, such as a hash.

    Returns:
        The other row, by row; at most `MAX_RESPONSES`.
    """
    swaps: dict[int, int] = {}
    for row, (shape, content) in enumerate(zip(shapes, contents)):
        others = (other for other in range(len(shapes)) if shapes[other] == shape and contents[other] != content)
        if (other := next(others, None)) is not None:
            swaps[row] = other
        if len(swaps) == MAX_RESPONSES:
            break
    return swaps


def sight_metrics(gaps: Sequence[float]) -> dict[str, float]:
    """Return the metric of a check: the mean change of a response's log-probability in nats; none without changes.

    Changes that are not finite show nothing about the images, and do not count.

    Raises:
        TrainingError: No log-probability depends on the images.
    """
    finite = [gap for gap in gaps if math.isfinite(gap)]
    if not finite:
        return {}
    if max(finite) <= BLIND:
        raise TrainingError(
            "the model does not see its images: with other images, responses have the same log-probabilities"
        )
    return {"sight/logprob_gap": float(np.mean(finite))}
