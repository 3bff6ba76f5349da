"""Skins: the same picture as if it were made of wood, printed on paper, sketched by hand, or photographed on a screen.

A skin changes the finished image, so it works for every game, and the state, the prompt and the rules stay the same.
Like `degrade.py`, it gives the same pixels on every processor: all arithmetic is on whole numbers, and OpenCV only
resizes, filters and moves pixels in ways that are exact. OpenCV is imported on use.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.degrade import Pixels

Plane = NDArray[np.int32]
"""A number for each pixel."""

SkinName = Literal["flat", "wood", "paper", "sketch", "screen"]

WOOD, PAPER = (196, 148, 96), (246, 238, 220)
TILT = 28
"""Maximum shift of a corner of a photographed screen, in thousandths of its side."""
STEPS = 32
"""Fractions of a pixel in OpenCV's maps of whole numbers."""


def apply_skin(image: Pixels, skin: SkinName, seed: int = 0) -> Pixels:
    """Return an image in a skin.

    Args:
        image: The image. It is not modified; `flat` returns it without a copy.
        skin: Name of the skin.
        seed: Seed of what differs between episodes: the angle from which a screen is photographed.
    """
    height, width, _ = image.shape
    if skin == "wood":
        return _on_material(image, WOOD, 56, _grain(height, width))
    if skin == "paper":
        return _on_material(image, PAPER, 72, _fibres(height, width))
    if skin == "sketch":
        return _sketched(image)
    if skin == "screen":
        return _photographed(image, seed)
    return image


def _on_material(image: Pixels, colour: tuple[int, int, int], share: int, light: Plane) -> Pixels:
    """Mix `share` / 256 of a material's colour into an image, and light it by `light` / 256."""
    mixed = image.astype(np.int32) * (256 - share) + np.array(colour, np.int32) * share
    return _clipped(mixed * light[..., None] >> 16)


def _sketched(image: Pixels) -> Pixels:
    """Draw the outlines of an image in pencil on paper, by an unsteady hand, with pale, hatched colours."""
    import cv2

    height, width, _ = image.shape
    image = _moved(image, *_unsteady_hand(height, width), cv2.BORDER_REPLICATE)
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    kernel = np.ones((2, 2), np.uint8)
    outlines = cv2.dilate(grey, kernel).astype(np.int32) - cv2.erode(grey, kernel)
    # Only the darker side of an edge is drawn, so that bright letters stay bright.
    pencil = 256 - np.clip(outlines * 3, 0, 180) * (grey <= cv2.blur(grey, (5, 5)))
    rows, columns = np.ogrid[:height, :width]
    hatching = ((rows + columns) * 1000 // max(1, min(height, width)) % 12 < 6) * 20
    pale = image.astype(np.int32) * (180 + hatching[..., None]) + np.array(PAPER, np.int32) * (76 - hatching[..., None])
    return _clipped((pale >> 8) * (pencil * _fibres(height, width) >> 8)[..., None] >> 8)


def _photographed(image: Pixels, seed: int) -> Pixels:
    """Photograph an image on a screen: at an angle, with the lines of its pixels, a reflection and dark corners."""
    import cv2

    places, fractions, light, reflection = _camera(image.shape[0], image.shape[1], seed)
    shown = _moved(image, places, fractions, cv2.BORDER_CONSTANT).astype(np.int32)
    return _clipped((shown * light >> 8) + reflection)


def _clipped(image: Plane) -> Pixels:
    pixels: Pixels = np.clip(image, 0, 255).astype(np.uint8)
    return pixels


@lru_cache(maxsize=8)
def _unsteady_hand(height: int, width: int) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """Where each pixel of a sketch comes from, for `_moved`."""
    wobble = min(height, width) * STEPS // 220
    down, across = ((_noise(height, width, 18, seed) - 128) * wobble // 128 for seed in (11, 12))
    return _places(height, width, down, across)


@lru_cache(maxsize=64)
def _camera(height: int, width: int, seed: int) -> tuple[NDArray[Any], NDArray[Any], Plane, Plane]:
    """Where each pixel of a photograph comes from, for `_moved`, and the light of each in 1/256, and its reflection."""
    rng = np.random.default_rng([seed, 7])
    tilts = rng.integers(0, TILT + 1, (4, 2)).tolist()  # inwards, from the top left clockwise
    rows, columns = np.mgrid[:height, :width].astype(np.int64)
    down, across = rows * 1024 // max(1, height - 1), columns * 1024 // max(1, width - 1)
    weights = ((1024 - down) * (1024 - across), (1024 - down) * across, down * across, down * (1024 - across))
    inwards = ((1, 1), (1, -1), (-1, -1), (-1, 1))
    shifts = [
        -sum(weight * tilt[axis] * sign[axis] for weight, tilt, sign in zip(weights, tilts, inwards))
        * (side * STEPS)
        // (1000 << 20)
        for axis, side in ((0, height), (1, width))
    ]
    lines = 240 + 16 * ((rows % 3 != 0) & ((columns + rows // 7) % 4 != 0))
    centre = (2 * rows - height) ** 2 * 1024 // height**2 + (2 * columns - width) ** 2 * 1024 // width**2
    light = lines * (1100 - centre // 4) // 1024
    reflection = np.clip(420 - np.abs(down + across // 2 - int(rng.integers(300, 1200))), 0, 420) * 30 // 420
    return *_places(height, width, *shifts), light[..., None].astype(np.int32), reflection[..., None].astype(np.int32)


def _places(height: int, width: int, down: Any, across: Any) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """Return OpenCV's map of whole numbers that takes each pixel from a place shifted by 1/32 pixels."""
    rows, columns = np.mgrid[:height, :width].astype(np.int64)
    rows, columns = rows * STEPS + down, columns * STEPS + across
    fractions = (rows % STEPS) * STEPS + columns % STEPS
    return np.stack([columns // STEPS, rows // STEPS], -1).astype(np.int16), fractions.astype(np.uint16)


def _moved(image: Pixels, places: NDArray[np.int16], fractions: NDArray[np.uint16], border: int) -> Pixels:
    """Take each pixel from its place; `border` is OpenCV's mode for places outside, black if it is constant."""
    import cv2

    moved = cv2.remap(image, places, fractions, cv2.INTER_LINEAR, borderMode=border)
    return np.asarray(moved, np.uint8)


def _noise(height: int, width: int, cells: int, seed: int, stretch: int = 1) -> Plane:
    """Smooth noise from 0 to 255 with about `cells` bumps from side to side, `stretch` times as long as wide."""
    import cv2

    shape = max(2, cells), max(2, cells // stretch)
    coarse = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR_EXACT), np.int32)


@lru_cache(maxsize=8)
def _grain(height: int, width: int) -> Plane:
    """Light of wood, in 1/256: rings cut lengthwise, and fine streaks."""
    rings = (_noise(height, width, 9, 1, 4) * 9 + _noise(height, width, 60, 2, 20) * 2) % 256
    rings = np.abs(rings - 128)
    light: Plane = 232 + rings * 34 // 128 - _noise(height, width, min(height, 240), 3, 12) * 30 // 255
    return light


@lru_cache(maxsize=8)
def _fibres(height: int, width: int) -> Plane:
    """Light of paper, in 1/256: clouds and short fibres."""
    return 238 + _noise(height, width, 6, 4) * 14 // 255 + _noise(height, width, min(height, 320), 5) * 12 // 255 - 8
