"""Test data: single-colour images, and column metadata."""

from __future__ import annotations

import io
import json
from typing import Any

from PIL import Image

RED, GREEN = (200, 0, 0), (0, 200, 0)
LABELS = {
    b"huggingface": json.dumps({"info": {"features": {"label": {"names": ["True", "False"], "_type": "ClassLabel"}}}})
}
"""Metadata that Hugging Face writes to a Parquet file whose column `label` has the classes True and False."""


def encoded(
    colour: Any = RED, size: tuple[int, int] = (30, 20), form: str = "PNG", mode: str = "RGB", **options: Any
) -> bytes:
    """Encode a single-colour image."""
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, form, **options)
    return buffer.getvalue()
