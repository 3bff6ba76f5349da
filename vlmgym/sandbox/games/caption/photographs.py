"""Photographs with keywords, read from the installed scikit-image package.

The documentation of `skimage.data` states their licences; most are CC0 or in the public domain. Each line of
`photographs.tsv` holds a photograph's name, file in `skimage/data`, SHA-256 of the file (unchanged since scikit-image
0.22), and keywords.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import UsageError, importing
from vlmgym.sandbox.data.images import decode, letterbox
from vlmgym.sandbox.games.caption.keywords import Keyword


class Photograph(NamedTuple):
    """A photograph in scikit-image and its keywords, the most obvious first."""

    file: str
    sha256: str
    keywords: tuple[Keyword, ...]


def read_keywords(text: str) -> tuple[Keyword, ...]:
    """Parse keywords separated by commas, semicolons or line breaks; `|` separates synonyms: `cat|kitten, table`."""
    for mark in ";\n":
        text = text.replace(mark, ",")
    groups = (tuple(filter(None, map(str.strip, group.split("|")))) for group in text.split(","))
    return tuple(group for group in groups if group)


def _read_photographs() -> dict[str, Photograph]:
    table = (files("vlmgym.sandbox.games.caption") / "photographs.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines())
    return {name: Photograph(file, sha256, read_keywords(words)) for name, file, sha256, words in rows}


PHOTOGRAPHS = _read_photographs()
"""Photographs by name; consecutive seeds follow this order."""


@lru_cache(maxsize=len(PHOTOGRAPHS))
def load_photograph(name: str, size: int) -> NDArray[np.uint8]:
    """Load a photograph, scaled to fit a square with grey margins: uint8 (size, size, 3), read-only."""
    photograph = PHOTOGRAPHS[name]
    try:
        with importing("a caption without data=", "tasks"):
            content = (files("skimage") / "data" / photograph.file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {photograph.file} of scikit-image: {error}") from None
    if hashlib.sha256(content).hexdigest() != photograph.sha256:
        raise UsageError(f"{photograph.file} of scikit-image is not the image that the keywords describe")
    image = letterbox(decode(content), size)
    image.flags.writeable = False
    return image
