"""Image degradation is deterministic, preserves the shape, and follows the config."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.games.vqa.game import Vqa, VqaConfig

ROOT = Path(__file__).parent.parent


@dataclass
class How:
    blur: float = 0.0
    noise: float = 0.0
    contrast: float = 1.0
    clutter: int = 0
    scale: float = 1.0
    crop: float = 0.0


ALL = How(blur=1.0, noise=0.1, contrast=0.7, clutter=5, scale=0.7, crop=0.1)


def noise_image(height: int = 60, width: int = 80, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def flat(value: int, height: int = 60, width: int = 80) -> NDArray[np.uint8]:
    return np.full((height, width, 3), value, np.uint8)


hows = st.builds(
    How,
    blur=st.floats(0, 5),
    noise=st.floats(0, 0.5),
    contrast=st.floats(0.1, 2),
    clutter=st.integers(0, 20),
    scale=st.floats(0.1, 1),
    crop=st.floats(0, 0.5),
)


@given(hows, st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_the_shape_is_kept_and_the_original_unchanged(how: How, height: int, width: int, seed: int) -> None:
    image = noise_image(height, width)
    before = image.copy()
    shown = degrade(image, how, seed)
    assert shown.shape == image.shape
    assert shown.dtype == np.uint8
    assert np.array_equal(image, before)
    assert np.array_equal(shown, degrade(image, how, seed))


def test_noise_differs_by_seed_and_index() -> None:
    for how in (How(noise=0.1), How(clutter=3)):
        shown = {degrade(flat(128), how, seed, index).tobytes() for seed in range(3) for index in range(2)}
        assert len(shown) == 6


GOLDEN = {
    "blur": "37c9f18cc61540e9",
    "noise": "0c6da7d5e38f475a",
    "contrast": "55d3d4182b0bd620",
    "clutter": "f65f4db7409f3916",
    "scale": "a1c82503c0a534cf",
    "crop": "06d02c9f5713eb3c",
    "all": "9268d3c36cf788d2",
}
"""First 16 hex digits of the SHA-256 of a degraded image, by degradation."""


def digest(name: str) -> str:
    how = ALL if name == "all" else replace(How(), **{name: getattr(ALL, name)})
    return hashlib.sha256(degrade(noise_image(), how, 7, 1).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("disabled", ["", "AVX2", "SSSE3,SSE4.1,SSE4.2,AVX,FP16,AVX2"])
def test_golden_pixels_on_any_processor(disabled: str) -> None:
    code = "from tests.test_degrade import *; print({name: digest(name) for name in GOLDEN})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "OPENCV_CPU_DISABLE": disabled},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(done.stdout) == GOLDEN


# Tasks ----------------------------------------------------------------------------------------------------------------


def test_a_state_has_one_image_before_and_after_the_answer() -> None:
    game = Vqa(VqaConfig.at(perception=5, size=200))
    state = game.start(np.random.default_rng(0))
    (image,) = game.draw(state)
    assert np.array_equal(image, Vqa(game.config).draw(game.from_json(game.to_json(state)))[0])
    assert np.array_equal(image, game.draw(game.on_invalid(state, np.random.default_rng(0)).state)[0])
    other = game.start(np.random.default_rng(1))
    assert not np.array_equal(image, game.draw(other)[0])
