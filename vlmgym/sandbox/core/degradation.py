"""Config fields of degraded images, applied by `rendering.degrade`."""

from __future__ import annotations

from vlmgym.sandbox.core.config import GameConfig, Levels, config_field

DEGRADATION: Levels = {
    1: {"contrast": 1.3},
    2: {"contrast": 1.15},
    3: {},
    4: {"contrast": 0.8, "blur": 0.3, "noise": 0.08, "clutter": 4, "scale": 0.85},
    5: {"contrast": 0.6, "blur": 0.5, "noise": 0.16, "clutter": 8, "scale": 0.7, "crop": 0.06},
}
"""Perception levels of games with degraded images; level 3 leaves images unchanged."""


class DegradedConfig(GameConfig):
    """Config fields of image degradation."""

    blur: float = config_field("perception", 0.0, "Blur radius in percent of the image's side.", ge=0.0, le=5.0)
    noise: float = config_field("perception", 0.0, "Amplitude of the noise; 1 is full scale.", ge=0.0, le=0.5)
    contrast: float = config_field("perception", 1.0, "Contrast relative to the original image.", ge=0.1, le=2.0)
    clutter: int = config_field("perception", 0, "Strokes drawn over the image.", ge=0, le=50)
    scale: float = config_field("perception", 1.0, "Size of the image relative to its frame.", ge=0.1, le=1.0)
    crop: float = config_field("perception", 0.0, "Fraction of width and height cropped at the edges.", ge=0.0, le=0.4)
