"""Drawing: canvas, boards from cached sprites, degraded images and image files."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image

from vlmgym import game_ids, make_game
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import DegradedConfig
from vlmgym.sandbox.drawing import board as board_module
from vlmgym.sandbox.drawing.board import BoardPainter
from vlmgym.sandbox.drawing.canvas import Canvas, FontName
from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.drawing.encode import encode_png
from vlmgym.sandbox.drawing.relief import light_scene, raise_figures

ROOT = Path(__file__).parent.parent
WHITE, BLACK, RED = (255, 255, 255), (0, 0, 0), (255, 0, 0)


# Canvas -----------------------------------------------------------------------------------------------------------


def test_a_crop_has_the_pixels_of_the_whole_image() -> None:
    whole, window = Canvas(90, 70, WHITE), Canvas(40, 30, WHITE, left=31, top=23)
    logo = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    for canvas in (whole, window):
        canvas.rectangle(20.3, 15.1, 30, 20, RED, radius=4)
        canvas.circle(60.2, 40.7, 13.3, BLACK)
        canvas.line((0, 0), (90, 70), 1.7, RED)
        canvas.text("HOH", 50, 45, 9, BLACK, angle=20)
        canvas.image(logo, 38, 50, angle=30)
        canvas.polygon([(62.1, 20.2), (80.6, 33.3), (66.6, 60.1)], RED)
    np.testing.assert_array_equal(window.pixels(), whole.pixels()[23:53, 31:71])


@pytest.mark.parametrize("rectangles", [12, 300])  # a canvas of more than 256 colours holds its samples differently
@pytest.mark.parametrize("photo", [False, True])
def test_pixels_are_the_rounded_means_of_sixteen_samples(rectangles: int, photo: bool) -> None:
    rng = np.random.default_rng(0)
    canvas, samples = Canvas(30, 20, BLACK), np.zeros((80, 120, 3), np.uint16)
    if photo:
        canvas.image(noise_image(8, 10), 200, 200)  # outside
    for left, top, width, height, *colour in rng.integers(1, 256, (rectangles, 7)).tolist():
        x, y, width, height = left / 6 - 10, top / 6 - 10, width / 16, height / 16
        canvas.rectangle(x, y, width, height, tuple(colour))
        rows, columns = (slice(max(0, round(4 * a)), max(0, round(4 * (a + b)))) for a, b in ((y, height), (x, width)))
        samples[rows, columns] = colour
        assert canvas.mask(tuple(colour)).count() == (samples == colour).all(axis=2).sum()
    means = (samples.reshape(20, 4, 30, 4, 3).sum(axis=(1, 3)) + 8) // 16
    np.testing.assert_array_equal(canvas.pixels(), means)


@given(st.lists(st.tuples(*[st.integers(-20, 60)] * 3, st.integers(0, 255)), max_size=12))
def test_shapes_and_text_are_the_same_beside_a_photo(shapes: list[tuple[int, int, int, int]]) -> None:
    plain, beside_photo = Canvas(40, 30, WHITE), Canvas(40, 30, WHITE)
    beside_photo.image(noise_image(8, 10), 200, 200)  # outside
    for canvas in (plain, beside_photo):
        for x, y, length, level in shapes:
            colour = level, 255 - level, 40
            canvas.circle(x / 3, y / 2, abs(length) / 3, colour)
            canvas.rectangle(y, x, length / 3, length / 5, colour, radius=length % 4)
            canvas.line((x, y), (y, length), 1.3, colour)
            canvas.text(str(level), x, y, 6, colour, angle=length)
    np.testing.assert_array_equal(plain.pixels(), beside_photo.pixels())
    assert plain.mask(WHITE).count() == beside_photo.mask(WHITE).count()


@pytest.mark.parametrize("colour", ["red", [255, 0, 0], np.array([255, 0, 0]), (255, 0, 0, 255)])
def test_games_may_draw_with_any_colours_of_pygame(colour: Any) -> None:
    canvas, background = Canvas(8, 8, BLACK), Canvas(8, 8, colour)
    canvas.rectangle(0, 0, 8, 8, colour)
    assert (canvas.pixels() == RED).all()
    assert (background.pixels() == RED).all()


@pytest.mark.parametrize("font", get_args(FontName))
def test_capitals_are_centred_and_equally_high_in_every_font(font: FontName) -> None:
    canvas = Canvas(200, 200, WHITE, font=font)
    canvas.text("H", 100, 100, 80, BLACK)
    inked = np.flatnonzero((canvas.pixels() < 128).any(axis=(1, 2)))
    assert (inked[0], inked[-1]) == pytest.approx((60, 139), abs=1)


# Painting ---------------------------------------------------------------------------------------------------------


def test_incremental_drawing_equals_full_drawing() -> None:
    for game_id in game_ids():
        for perception in (1, 4):
            game = make_game(game_id, perception, size=256)
            if not isinstance(game, BoardGame):
                continue
            rng = np.random.default_rng(0)
            state = game.start(rng)
            out = [np.zeros(shape, dtype=np.uint8) for shape in game.image_shapes]
            game.draw_into(state, out)
            for _ in range(10):
                legal = game.legal_actions(state)
                if not legal:
                    break
                after = game.step(state, legal[int(rng.integers(len(legal)))], rng).state
                game.draw_into(after, out, state)
                np.testing.assert_array_equal(out, game.images(after))
                state = after


def paint_square(canvas: Canvas, cell: Hashable, angle: float) -> None:
    if cell:
        canvas.rectangle(canvas.width / 4, canvas.height / 4, canvas.width / 2, canvas.height / 2, RED)


def painter_of(**overrides: Any) -> BoardPainter:
    return BoardPainter(BoardConfig(**overrides), paint_square)


def test_images_do_not_depend_on_the_sprite_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "CACHED_BYTES", 5 * 35 * 35 * 3)
    overrides = {"size": 120, "rows": 3, "columns": 3, "noise": 0.2, "rotation": 20, "clutter": 3}
    cells = ((0, 1, 0), (1, 1, 1), (0, 0, 1))
    used = painter_of(**overrides)
    for variation_seed in range(10):
        used.paint(cells, variation_seed)
    np.testing.assert_array_equal(used.paint(cells, 3), painter_of(**overrides).paint(cells, 3))
    assert len(used._sprites) == 5


# Degradation --------------------------------------------------------------------------------------------------------


ALL = DegradedConfig(blur=1.0, noise=0.1, contrast=0.7, clutter=5, scale=0.7, crop=0.1)


def noise_image(height: int = 60, width: int = 80, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


hows = st.builds(
    DegradedConfig,
    blur=st.floats(0, 5),
    noise=st.floats(0, 0.5),
    contrast=st.floats(0.1, 2),
    clutter=st.integers(0, 20),
    scale=st.floats(0.1, 1),
    crop=st.floats(0, 0.4),
)


@given(hows, st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_the_shape_is_kept_and_the_original_unchanged(how: DegradedConfig, height: int, width: int, seed: int) -> None:
    image = noise_image(height, width)
    before = image.copy()
    shown = degrade(image, how, seed)
    assert shown.shape == image.shape
    assert shown.dtype == np.uint8
    assert np.array_equal(image, before)
    assert np.array_equal(shown, degrade(image, how, seed))


GOLDEN = {
    "blur": "37c9f18cc61540e9",
    "noise": "0c6da7d5e38f475a",
    "contrast": "55d3d4182b0bd620",
    "clutter": "f65f4db7409f3916",
    "scale": "a1c82503c0a534cf",
    "crop": "06d02c9f5713eb3c",
    "all": "9268d3c36cf788d2",
    "raised": "d9d2f36459a1c4c6",
    "lit": "f8c10bd1ef25719b",
}
"""First 16 hex digits of the SHA-256 of a degraded or lit image, by what was done to it."""


def digest(name: str) -> str:
    squares = noise_image(5, 5).repeat(30, axis=0).repeat(30, axis=1)
    ground = tuple(squares[0, 0].tolist())
    if name == "lit":
        light_scene(squares, ground)
        shown = squares
    elif name == "raised":
        shown = raise_figures(squares, [ground], 0.7, joined=False)
    else:
        shown = degrade(noise_image(), ALL if name == "all" else DegradedConfig(**{name: getattr(ALL, name)}), 7, 1)
    return hashlib.sha256(shown.tobytes()).hexdigest()[:16]


def test_golden_pixels_on_any_processor() -> None:
    assert {name: digest(name) for name in GOLDEN} == GOLDEN
    code = "from tests.test_drawing import *; print({name: digest(name) for name in GOLDEN})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "OPENCV_CPU_DISABLE": "SSSE3,SSE4.1,SSE4.2,AVX,FP16,AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(done.stdout) == GOLDEN


# Files --------------------------------------------------------------------------------------------------------------


def decoded(file: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(file)) as image:
        image.load()
        assert image.mode == "RGB"
        return np.asarray(image)


image_sizes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3))


@given(arrays(np.uint8, image_sizes))
def test_png_of_any_size_and_view_keeps_every_pixel(image):
    for view in (image, image[::-1, ::2]):
        np.testing.assert_array_equal(decoded(encode_png(view)), view)
