"""Which samples go through the model at once: answers to one prompt, and what is of about one length."""

from __future__ import annotations

from collections.abc import Sequence

from training.local.actor import Sample, each_once

FILLED = 0.75
"""Share of its row that each sample fills at least: padding costs as much as tokens, but each pass through the model
costs something, too."""


def micro_batches(samples: Sequence[Sample], most: int) -> list[list[int]]:
    """The places of all samples, those together that go through the model at once.

    A row is as long as the longest prompt and the longest response together, which are padded apart. The longest
    prompts come first, and of answers to one prompt the longest.

    Args:
        samples: Prompts with responses.
        most: How many may go through it at once.
    """
    _, prompts = each_once([sample.prompt for sample in samples])
    lengths = [(len(sample.prompt.ids), len(sample.response)) for sample in samples]
    batches: list[list[int]] = []
    for place in sorted(
        range(len(samples)), key=lambda place: (-lengths[place][0], prompts[place], -lengths[place][1])
    ):
        together = [*batches[-1], place] if batches else []
        row = sum(max(each) for each in zip(*(lengths[one] for one in together)))
        if 1 < len(together) <= most and min(sum(lengths[one]) for one in together) >= FILLED * row:
            batches[-1] = together
        else:
            batches.append([place])
    return batches
