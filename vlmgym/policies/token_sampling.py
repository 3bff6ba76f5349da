"""Token sampling with one seed per prompt, without image tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from transformers import LogitsProcessor, PretrainedConfig

IMAGE_TOKEN = re.compile("(image|video|vision)_(start_|end_)?token_(id|index)")
"""Fields of a model config that hold the ids of image tokens."""


def image_token_ids(config: PretrainedConfig) -> list[int]:
    """Return the ids of image placeholder tokens, which are meaningless in a response."""
    return sorted({value for name, value in config.to_dict().items() if IMAGE_TOKEN.fullmatch(name)})


class SeededSampler(LogitsProcessor):  # type: ignore[misc]
    """Samples by the Gumbel-max trick (Gumbel 1954): with noise added, greedy decoding draws a random token.

    Each row has its own generator, so samples do not depend on the other prompts in the batch (up to rounding).
    """

    def __init__(self, seeds: Sequence[int | None], device: torch.device, temperature: float = 1.0) -> None:
        """Create a generator for each row from its seed; None for a random one. `temperature` is above 0."""
        self._temperature = temperature
        self._generators = [torch.Generator(device) for _ in seeds]
        for generator, seed in zip(self._generators, seeds, strict=True):
            if seed is None:
                generator.seed()
            else:
                generator.manual_seed(seed)

    def select(self, rows: Sequence[int]) -> SeededSampler:
        """Return a sampler for some of the rows, which shares their generators."""
        selected = SeededSampler((), torch.device("cpu"), self._temperature)
        selected._generators = [self._generators[row] for row in rows]
        return selected

    def __call__(self, input_ids: torch.Tensor | None, scores: torch.Tensor) -> torch.Tensor:
        """Add Gumbel noise to log-probabilities of shape (batch, vocab)."""
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        return scores / self._temperature - noise.clamp_min(torch.finfo(noise.dtype).tiny).log()
