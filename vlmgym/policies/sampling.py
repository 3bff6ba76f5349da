"""How a language model's response is drawn: the options that servers and local models share."""

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
    """Options of a policy that samples tokens; what is not given is left to the model's or server's own defaults."""

    temperature: float | None = None
    """Randomness of a response, at least 0; 0 takes the likeliest token."""
    top_p: float | None = None
    """Draw from the likeliest tokens that together have this probability, above 0, at most 1."""
    top_k: int | None = None
    """Draw from this many of the likeliest tokens (vLLM and others; OpenAI's own models refuse it)."""
    max_tokens: int | None = None
    """Longest response in tokens, hidden reasoning included; what a model says beyond is not read."""
    sample_seed: int | None = None
    """Makes sampling repeatable where the model allows. Every request gets a seed of its own, made of this number, the
    game, the episode's seed and the turn, so a resumed run or another order of episodes asks with the same ones."""
    stop: tuple[str, ...] = ()
    """End a response before any of these texts. The text itself is left out by most servers: </answer> would leave
    every answer unclosed, that is, unparsable."""

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise UsageError(f"temperature is a number of at least 0, not {self.temperature!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is a number above 0 and at most 1, not {self.top_p!r}")
        for name, least in (("top_k", 1), ("max_tokens", 1), ("sample_seed", 0)):
            check_int(name, getattr(self, name), least, optional=True)
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise UsageError(f"stop is a list of texts that are not empty, not {self.stop!r}")

    def to_dict(self) -> dict[str, Any]:
        """All options as JSON-serialisable values."""
        return super().to_dict() | {"stop": list(self.stop)}

    def sampling(self, prompt: Prompt) -> dict[str, Any]:
        """Those options that are given, by the names that the OpenAI API and vLLM have for them."""
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_tokens": self.max_tokens,
            "seed": self.request_seed(prompt),
            "stop": list(self.stop) or None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def request_seed(self, prompt: Prompt) -> int | None:
        """The seed of one request, 0 to 2^31 - 1, or None if sampling is not seeded."""
        if self.sample_seed is None:
            return None
        place = (self.sample_seed, crc32(prompt.game.id.encode()), prompt.seed, prompt.turn)
        return int(np.random.SeedSequence(place).generate_state(1)[0]) >> 1
