"""What ends a training run."""

from __future__ import annotations

from vlmgym.errors import VlmgymError


class TrainingError(VlmgymError):
    """Training cannot go on; the message says why and what helps."""


class DivergedError(TrainingError):
    """What is learned from is no number any more, or far too large; the same options come to the same again."""


class ColdStartError(VlmgymError):
    """The cold start taught too little for rewards to go on from."""
