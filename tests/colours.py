"""Test data: single-colour images, tables, and column metadata."""

from __future__ import annotations

import io
import json
from pathlib import Path
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


def write_rows(folder: Path, *rows: dict[str, Any], name: str = "rows.jsonl") -> str:
    """Write a table as JSON lines, beside the red image a.png, which a row shows unless it has another one."""
    (folder / "a.png").write_bytes(encoded())
    (folder / name).write_text("".join(json.dumps({"image": "a.png", **row}) + "\n" for row in rows))
    return str(folder / name)
