"""What a reader is shown of an image: cut-outs, each brought to the same few pixels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.spec import AnyGame, Crops
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.rendering.degrade import resize

SIDE = 16
"""Side in pixels of a cut-out as a reader sees it."""
WIDEST = 2048
"""Pixels in a row that are shrunk at once."""

Kinds = Callable[[AnyGame], Sequence[Hashable]]


def shrink(cuts: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """Cut-outs uint8 (height, width, 3), all of one size, as float32 (number, SIDE * SIDE * 3), 0 to 1."""
    width = cuts[0].shape[1]
    side_by_side = [cuts[start : start + WIDEST // width] for start in range(0, len(cuts), WIDEST // width)]
    strips = [resize(np.concatenate(strip, axis=1), SIDE, SIDE * len(strip)) for strip in side_by_side]
    pixels = np.concatenate(strips, axis=1).reshape(SIDE, len(cuts), SIDE * 3).swapaxes(0, 1)
    seen: NDArray[np.float32] = pixels.reshape(len(cuts), -1).astype(np.float32) / 255
    return seen


def boards_of(kinds: Kinds) -> Callable[[AnyGame, np.random.Generator], Crops]:
    """Cells of boards on which every kind of cell is as likely everywhere, so that no kind is rarer at some level."""

    def cut(game: AnyGame, rng: np.random.Generator) -> Crops:
        c, known = game.config, kinds(game)
        drawn = rng.integers(len(known), size=(c.rows, c.columns)).tolist()
        return _cells(game, [[known[kind] for kind in row] for row in drawn], int(rng.integers(2**32)))

    return cut


def dealt_boards(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Cells of boards as they are dealt."""
    assert isinstance(game, BoardGame)
    state = game.start(rng)
    return _cells(game, game.cells(state), game.variation_seed(state))


def _cells(game: AnyGame, cells: Sequence[Sequence[Hashable]], variation_seed: int) -> Crops:
    assert isinstance(game, BoardGame)
    image, geometry = game.painter.paint(cells, variation_seed), game.painter.geometry
    cuts, words = [], []
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            left, top, width, height = geometry.cell_box(row, column)
            cuts.append(image[top : top + height, left : left + width])
            words.append(game.cell_words(cell))
    return shrink(cuts), words
