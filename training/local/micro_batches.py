"""Which samples go through the model at once: those of about one length, so that little of it is padding."""

from __future__ import annotations

from collections.abc import Sequence

from training.local.actor import Sample

FILLED = 0.75
"""A sample goes with longer ones if it is at least this long beside the longest: padding costs as much as tokens, but
each pass through the model costs something, too."""


def micro_batches(samples: Sequence[Sample], most: int) -> list[list[int]]:
    """The places of all samples, those together that go through the model at once; the longest come first.

    Args:
        samples: Prompts with responses.
        most: How many may go through it at once.
    """
    lengths = [len(sample.prompt.ids) + len(sample.response) for sample in samples]
    batches: list[list[int]] = []
    for place in sorted(range(len(samples)), key=lambda place: -lengths[place]):
        last = batches[-1] if batches else []
        if 0 < len(last) < most and lengths[place] >= FILLED * lengths[last[0]]:
            last.append(place)
        else:
            batches.append([place])
    return batches
