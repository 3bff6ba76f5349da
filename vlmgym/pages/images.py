"""Images of an episode as deduplicated tiles: 100 images of a board take about 20 kB."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from PIL import Image

from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.drawing.encode import encode_jpeg

LOSSLESS_BYTES_PER_PIXEL = 0.5
"""Tiles whose lossless WebP exceeds both this and 1 KiB (noise, photographs) are stored as JPEG."""
QUALITY = 90
"""JPEG quality of lossy tiles: noise changes by about 4 out of 255 on average, and takes half as many bytes."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Tile edges of an image in pixels: columns from 0 to width, rows from 0 to height."""

    columns: tuple[int, ...]
    rows: tuple[int, ...]

    def tiles(self, image: ImageArray) -> Iterator[ImageArray]:
        """Yield the tiles row by row."""
        for top, bottom in pairwise(self.rows):
            for left, right in pairwise(self.columns):
                yield image[top:bottom, left:right]


def cuts_of(game: Game[Any, Any], shape: tuple[int, ...]) -> Cuts:
    """Return the tile edges of an image: boards are cut into cells and border, other images are a single tile."""
    height, width = shape[:2]
    if not isinstance(game, BoardGame):
        return Cuts((0, width), (0, height))
    board = game.painter.geometry

    def edges(first: int, cells: int, size: int) -> tuple[int, ...]:
        inner = (first - board.gap // 2 + i * board.pitch for i in range(cells + 1))
        return (0, *inner, size)

    return Cuts(edges(board.left, board.columns, width), edges(board.top, board.rows, height))


class TileSheet:
    """The distinct tiles of many images."""

    def __init__(self) -> None:
        self.tiles: list[str] = []
        """Image files as data URLs."""
        self._numbers: dict[bytes, int] = {}
        self._cells: dict[tuple[int, int, int, Hashable], int] = {}

    def add(self, image: ImageArray, cuts: Cuts) -> list[int]:
        """Add an image and return its tile indices, row by row."""
        return [self._number(np.ascontiguousarray(tile)) for tile in cuts.tiles(image)]

    def add_board(self, game: BoardGame[Any, Any], state: Any, cuts: Cuts) -> list[int]:
        """Add the image of a board and return its tile indices, row by row.

        The board is drawn only if one of its cells has a new value, because hashing pixels is slow.
        """
        border = [None] * (game.config.columns + 2)
        rows: list[Sequence[Hashable]] = [border, *([None, *row, None] for row in game.cells(state)), border]
        seed = game.variation_seed(state)
        keys = [(seed, i, j, cell) for i, row in enumerate(rows) for j, cell in enumerate(row)]
        if not self._cells.keys() >= set(keys):
            for key, tile in zip(keys, cuts.tiles(game.draw(state)), strict=True):
                if key not in self._cells:
                    self._cells[key] = self._number(np.ascontiguousarray(tile))
        return [self._cells[key] for key in keys]

    def _number(self, tile: ImageArray) -> int:
        key = hashlib.sha256(tile.data).digest() + tile.shape[0].to_bytes(4, "big")  # the fastest hash in hashlib
        if key not in self._numbers:
            self._numbers[key] = len(self.tiles)
            self.tiles.append(data_url(tile))
        return self._numbers[key]


def data_url(image: ImageArray) -> str:
    """Encode an image as lossless WebP, or as JPEG for noise and photographs."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "WEBP", lossless=True, method=1, quality=20)
    kind, data = "webp", file.getvalue()
    if len(data) > max(1024, LOSSLESS_BYTES_PER_PIXEL * image.shape[0] * image.shape[1]):
        kind, data = "jpeg", encode_jpeg(image, QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def episode_images(game: Game[Any, Any], states: Sequence[Any]) -> dict[str, Any]:
    """Render the images of states.

    Returns:
        `tiles`: data URLs; `cuts`: edges of `columns` and `rows` per image; `frames`: tile indices per image, for each
        distinct state; `shown`: index of the frame of each state.
    """
    sheet = TileSheet()
    cuts = [cuts_of(game, shape) for shape in game.image_shapes]
    frames: list[list[list[int]]] = []
    numbers: dict[str, int] = {}
    shown: list[int] = []
    for state in states:
        state_json = game.to_json(state)
        if state_json not in numbers:
            numbers[state_json] = len(frames)
            if isinstance(game, BoardGame) and type(game).draw is BoardGame.draw:
                frames.append([sheet.add_board(game, state, cuts[0])])
            else:
                frames.append([sheet.add(image, cut) for image, cut in zip(game.images(state), cuts, strict=True)])
        shown.append(numbers[state_json])
    return {"tiles": sheet.tiles, "cuts": [asdict(cut) for cut in cuts], "frames": frames, "shown": shown}
