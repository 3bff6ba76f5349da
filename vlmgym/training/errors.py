"""Errors that end a training run."""

from __future__ import annotations

from vlmgym.errors import VlmgymError


class TrainingError(VlmgymError):
    """Training cannot continue; the message suggests a remedy."""


class DivergedError(TrainingError):
    """The loss or gradient is not finite or far too large. Resuming with the same options would diverge again."""


class SftError(VlmgymError):
    """Supervised fine-tuning missed its gate, the minimum accuracy to start reinforcement learning."""
