"""Sampling options shared by servers and local models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.policies.base import PolicyOptions, Prompt


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(PolicyOptions):
    """Sampling options. Options that are not set use the defaults of the model or server."""

    temperature: float | None = None
    """Sampling temperature, at least 0; 0 is greedy."""
    top_p: float | None = None
    """Sample from the most likely tokens with this total probability, above 0 and at most 1."""
    top_k: int | None = None
    """Sample from this many of the most likely tokens. Supported by vLLM and others, not by OpenAI."""
    max_tokens: int | None = None
    """Maximum response length in tokens, including hidden reasoning."""
    sample_seed: int | None = None
    """Seed for reproducible sampling, where the model supports it.
    Each request gets its own seed, derived from this number, the game, the episode's seed and the turn."""
    stop: tuple[str, ...] = ()
    """Stop sequences.
    Most servers omit them from the response, so </answer> would leave every answer unclosed and unparsable."""

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise UsageError(f"temperature must be at least 0, got {self.temperature!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, got {self.top_p!r}")
        for name, least in (("top_k", 1), ("max_tokens", 1), ("sample_seed", 0)):
            check_int(name, getattr(self, name), least, optional=True)
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise UsageError(f"stop must be a list of non-empty strings, got {self.stop!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return all options as JSON-serialisable values."""
        return super().to_dict() | {"stop": list(self.stop)}

    def sampling(self, prompt: Prompt | None = None) -> dict[str, Any]:
        """Return the options that are set, named as in the OpenAI API and vLLM; without a prompt, there is no seed."""
        options = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_tokens": self.max_tokens,
            "seed": None if prompt is None else self.request_seed(prompt),
            "stop": list(self.stop) or None,
        }
        return {name: value for name, value in options.items() if value is not None}

    def request_seed(self, prompt: Prompt) -> int | None:
        """Return the seed of a request, 0 to 2^31 - 1; None without `sample_seed`."""
        if self.sample_seed is None:
            return None
        entropy = (self.sample_seed, crc32(prompt.game.id.encode()), prompt.seed, prompt.turn)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1
