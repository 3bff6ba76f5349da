"""Encoding of images."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from vlmgym.errors import UsageError
from vlmgym.sandbox.drawing.encode import encode_jpeg, encode_png
from vlmgym.sandbox.registry import make_game


def decoded(file: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(file)) as image:
        image.load()
        assert image.mode == "RGB"
        return np.asarray(image)


sizes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(3))


@given(arrays(np.uint8, sizes))
def test_png_of_any_size_and_view_keeps_every_pixel(image):
    for view in (image, image[::-1, ::2]):
        np.testing.assert_array_equal(decoded(encode_png(view)), view)
        assert decoded(encode_jpeg(view)).shape == view.shape


@pytest.mark.parametrize("name", ["2048", "shisensho", "swap"])
@pytest.mark.parametrize("perception", [3, 5])
def test_png_of_a_board_keeps_every_pixel_and_is_smaller(name, perception):
    game = make_game(name, perception, size=320)
    image = game.draw(game.start(np.random.default_rng(0)))
    file = encode_png(image)
    np.testing.assert_array_equal(decoded(file), image)
    assert len(file) < image.nbytes * (0.1 if perception == 3 else 1.0)


def test_jpeg_is_close_and_closer_at_a_higher_quality():
    game = make_game("shisensho", size=320)
    image = game.draw(game.start(np.random.default_rng(0)))
    errors = [np.abs(decoded(encode_jpeg(image, q)).astype(int) - image).mean() for q in (30, 60, 95)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 2


@pytest.mark.parametrize("encode", [encode_png, encode_jpeg])
@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_other_arrays_are_rejected(encode, image):
    with pytest.raises(UsageError, match=r"uint8 of shape \(height, width, 3\)"):
        encode(image)


def test_quality_out_of_range_is_rejected():
    with pytest.raises(UsageError, match="between 1 and 95, got 96"):
        encode_jpeg(np.zeros((4, 4, 3), np.uint8), 96)
