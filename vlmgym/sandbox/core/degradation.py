"""Config fields of degraded images, applied by `drawing.degrade`."""

from __future__ import annotations

from vlmgym.sandbox.core.config import GameConfig, config_field


class DegradedConfig(GameConfig):
    """Config fields of image degradation; level 3 leaves images unchanged."""

    blur: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.3, 0.5], "Blur radius in percent of the image's side.", ge=0.0, le=5.0
    )
    noise: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.08, 0.16], "Amplitude of the noise; 1 is full scale.", ge=0.0, le=0.5
    )
    contrast: float = config_field(
        "perception", [1.3, 1.15, 1.0, 0.8, 0.6], "Contrast relative to the original image.", ge=0.1, le=2.0
    )
    clutter: int = config_field("perception", [0, 0, 0, 4, 8], "Strokes drawn over the image.", ge=0, le=50)
    scale: float = config_field(
        "perception", [1.0, 1.0, 1.0, 0.85, 0.7], "Size of the image relative to its frame.", ge=0.1, le=1.0
    )
    crop: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.0, 0.06], "Fraction of width and height cropped at the edges.", ge=0.0, le=0.4
    )
