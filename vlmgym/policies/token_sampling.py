"""How tokens of a response are drawn: by a seed for each prompt, and never one that stands for an image."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from transformers import LogitsProcessor, PretrainedConfig

IMAGE_TOKEN = re.compile("(image|video|vision)_(start_|end_)?token_(id|index)")
"""Fields of a model's configuration that name the tokens that stand for images."""


def image_token_ids(config: PretrainedConfig) -> list[int]:
    """The tokens that stand for images: they mean nothing in a response."""
    return sorted({value for name, value in config.to_dict().items() if IMAGE_TOKEN.fullmatch(name)})


class SeededSampler(LogitsProcessor):  # type: ignore[misc]
    """Makes the likeliest token a random one, of the same probabilities: the Gumbel-max trick (Gumbel 1954).

    Every row has a generator of its own, so that which prompts happen to share a batch does not change what is drawn,
    but for rounding.
    """

    def __init__(self, seeds: Sequence[int | None], device: torch.device, temperature: float = 1.0) -> None:
        """A generator for each row.

        Args:
            seeds: One for each row; None: whatever.
            device: Where the model is.
            temperature: What log-probabilities are divided by, more than 0.
        """
        self._temperature = temperature
        self._generators = [torch.Generator(device) for _ in seeds]
        for generator, seed in zip(self._generators, seeds, strict=True):
            if seed is None:
                generator.seed()
            else:
                generator.manual_seed(seed)

    def of(self, rows: Sequence[int]) -> SeededSampler:
        """The same for some of the rows."""
        chosen = SeededSampler((), torch.device("cpu"), self._temperature)
        chosen._generators = [self._generators[row] for row in rows]
        return chosen

    def __call__(self, input_ids: torch.Tensor | None, scores: torch.Tensor) -> torch.Tensor:
        """Add Gumbel noise to log-probabilities of shape (prompts, tokens)."""
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        return scores / self._temperature - noise.clamp_min(torch.finfo(noise.dtype).tiny).log()
