"""Token sampling with one seed per prompt, without image tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch
from transformers import LogitsProcessor, PretrainedConfig

IMAGE_TOKEN = re.compile("(image|video|vision)_(start_|end_)?token_(id|index)")
"""Fields of a model config that hold the ids of image tokens."""
DRAWN_AT_ONCE = 64
"""Random numbers that a row draws in one call, which takes hardly longer than drawing one."""


def image_token_ids(config: PretrainedConfig) -> list[int]:
    """Return the ids of image placeholder tokens, which are meaningless in a response."""
    return sorted({value for name, value in config.to_dict().items() if IMAGE_TOKEN.fullmatch(name)})


class SeededSampler(LogitsProcessor):  # type: ignore[misc]
    """Samples tokens by inverting the cumulative distribution at one random number per row.

    Each row has its own generator, so the other prompts in the batch affect its samples only through rounding.
    """

    def __init__(self, seeds: Sequence[int | None], temperature: float = 1.0) -> None:
        """Create a generator for each row from its seed; None for a random seed. `temperature` must be above 0."""
        self._temperature = temperature
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        self._numbers = np.empty((len(seeds), 0), np.float32)
        """The next random numbers of each row."""

    def select(self, rows: Sequence[int]) -> SeededSampler:
        """Return a sampler for some of the rows. It shares their generators, so do not use this sampler afterwards."""
        selected = SeededSampler((), self._temperature)
        selected._rngs = [self._rngs[row] for row in rows]
        selected._numbers = self._numbers[rows]
        return selected

    def draw(self, scores: torch.Tensor) -> torch.Tensor:
        """Draw a token id for each row of the logits `scores`, of shape (batch, vocab); 0 if the row has a NaN."""
        if not self._numbers.shape[1]:
            drawn = [rng.random(DRAWN_AT_ONCE, dtype=np.float32) for rng in self._rngs]
            self._numbers = 1 - np.stack(drawn)  # above 0 and at most 1
        uniform = torch.from_numpy(self._numbers[:, :1]).to(scores)
        self._numbers = self._numbers[:, 1:]
        probabilities = (scores / self._temperature).softmax(-1)
        cumulative = probabilities.cumsum(-1)
        if scores.device.type == "cpu":
            thresholds = uniform * cumulative[:, -1:]
            return torch.searchsorted(cumulative, thresholds).masked_fill_(thresholds.isnan(), 0).squeeze(-1)
        # On a GPU, rounding can make cumulative sums decrease, so that a token of probability 0 could be the first to
        # reach the threshold.
        cumulative = cumulative.masked_fill(probabilities == 0, 0.0)
        return (cumulative >= uniform * cumulative.amax(-1, keepdim=True)).byte().argmax(-1)

    def __call__(self, input_ids: torch.Tensor | None, scores: torch.Tensor) -> torch.Tensor:
        """Return 0 for the drawn tokens and -inf for all others, so that greedy decoding selects the drawn tokens."""
        return torch.full_like(scores, -torch.inf).scatter(-1, self.draw(scores).unsqueeze(-1), 0.0)
