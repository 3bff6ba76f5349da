"""Images in data: files and bytes, valid, corrupt and malicious."""

import base64
import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.colours import GREEN, RED, encoded
from vlmgym.sandbox.data import images
from vlmgym.sandbox.data.images import decode, image_bytes, letterbox
from vlmgym.sandbox.data.rows import BadRow


def test_images_as_path_bytes_dict_or_data_url(tmp_path):
    blob = encoded()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "1.png").write_bytes(blob)
    (tmp_path / "link.png").symlink_to("sub/1.png")
    url = "data:image/png;base64," + base64.b64encode(blob).decode()
    for value in (
        "sub/1.png",
        "sub/../sub/1.png",
        "link.png",
        blob,
        {"bytes": blob, "path": "elsewhere.png"},
        {"bytes": None, "path": "sub/1.png"},
        url,
    ):
        assert image_bytes(value, tmp_path) == blob


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "has no image"), ("", "has no image"), (float("nan"), "has no image"),
        ({"bytes": None, "path": None}, "has no image"), (7, "got 7"),
        ("missing.png", "no image 'missing.png'"), (".", "no image '.'"), ("nul\0.png", "cannot be read"),
        ("../secret.png", "outside the folder"), ("/etc/hostname", "outside the folder"),
        ("way_out.png", "outside the folder"), ("loop", "loop|no image"),
        ("data:image/png,abc", "not a base64 data URL"), ("data:image/png;base64,@@@", "not valid base64"),
        ("http://example.com/a.png", "only with urls=true"), ("HTTPS://example.com/a.png", "only with urls=true"),
        ("file:///etc/hostname", "only with urls=true"),
    ],
)  # fmt: skip
def test_values_that_are_not_images_are_bad_rows(tmp_path, value, why):
    (tmp_path / "secret.png").write_bytes(encoded())
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "way_out.png").symlink_to("../secret.png")
    (folder / "loop").symlink_to("loop")
    with pytest.raises(BadRow, match=why):
        image_bytes(value, folder)


def bomb(width, height):
    """Return a small PNG whose header claims a huge size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "is empty"),
        (b"no image at all", "none of the formats"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "none of the formats"),
        (encoded()[:60], "corrupt|none of the formats"),
        (encoded(form="JPEG", size=(200, 200))[:-200], "corrupt"),
        (bomb(9000, 8000), "9000 x 8000 pixels"),
        (bomb(60000, 60000), "more than 64000000 pixels"),
    ],
)
def test_corrupt_images_and_bombs_are_bad_rows(blob, why):
    with pytest.raises(BadRow, match=why):
        decode(blob)


@pytest.mark.filterwarnings("ignore")  # Pillow warns about tags that it skips
@given(st.integers(0, 2**32 - 1), st.sampled_from(["PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP"]))
def test_corrupted_bytes_are_decoded_or_a_bad_row(seed, form):
    rng = np.random.default_rng(seed)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8)).save(buffer, form)
    blob = np.frombuffer(buffer.getvalue(), np.uint8).copy()
    blob[rng.integers(0, blob.size, 4)] = rng.integers(0, 256, 4)
    with suppress(BadRow):
        assert decode(blob.tobytes()).mode == "RGB"


def test_transparency_becomes_white():
    for mode, colour in (("RGBA", (*RED, 0)), ("LA", (10, 0))):
        assert decode(encoded(colour, mode=mode)).getpixel((5, 5)) == (255, 255, 255)
    assert decode(encoded((0, 0, 0, 128), mode="RGBA")).getpixel((5, 5)) == (127, 127, 127)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([*RED, *GREEN])
    buffer = io.BytesIO()
    palette.save(buffer, "PNG", transparency=1)
    assert decode(buffer.getvalue()).getpixel((0, 0)) == RED


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize(("dtype", "form"), [(np.uint16, "PNG"), (np.int32, "TIFF")])
def test_greyscale_of_any_number_of_bits_uses_the_full_range(bits, dtype, form):
    ramp = np.tile(np.arange(256) * ((1 << bits) - 1) // 255, (4, 1))
    buffer = io.BytesIO()
    Image.fromarray(ramp.astype(dtype)).save(buffer, form)
    assert np.abs(np.asarray(decode(buffer.getvalue()))[0, :, 0].astype(int) - np.arange(256)).max() <= 1


def test_exif_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(encoded(form="JPEG", exif=exif)).size == (20, 30)


@pytest.mark.parametrize("size", [(400, 200), (10, 30)])
def test_letterbox_keeps_the_aspect_ratio(size):
    image = letterbox(Image.new("RGB", size, RED), 64)
    assert (image.shape, image.dtype, image.flags.writeable) == ((64, 64, 3), np.uint8, True)
    assert tuple(image[0, 0]) == images.MARGIN
    coloured = (image == RED).all(axis=2)
    wide, high = coloured.any(axis=0).sum(), coloured.any(axis=1).sum()
    assert wide / high == pytest.approx(size[0] / size[1], rel=0.05)
