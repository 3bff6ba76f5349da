"""Crops of board images for the readers, resized to a few pixels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.marks import MARKS
from benchmarks.calibration.spec import AnyGame, Crops
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import pick
from vlmgym.sandbox.drawing.degrade import resize

SIDE = 16
"""Side of a resized crop in pixels."""
WIDEST = 2048
"""Maximum width of a strip of crops that is resized in one call."""

SEEDS, MOVES = 5, 60
"""Number of episodes played at random, and as many by the oracle, and maximum number of turns per episode, when
collecting the kinds of cells."""

CORNERED = 16
"""Number of pictures in `picture_corners`."""

Kinds = Callable[[AnyGame], Sequence[Hashable]]


def shrink(crops: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """Resize equally large uint8 crops (height, width, 3) to float32 (count, SIDE * SIDE * 3) in 0 to 1."""
    width = crops[0].shape[1]
    side_by_side = [crops[start : start + WIDEST // width] for start in range(0, len(crops), WIDEST // width)]
    strips = [resize(np.concatenate(strip, axis=1), SIDE, SIDE * len(strip)) for strip in side_by_side]
    pixels = np.concatenate(strips, axis=1).reshape(SIDE, len(crops), SIDE * 3).swapaxes(0, 1)
    seen: NDArray[np.float32] = pixels.reshape(len(crops), -1).astype(np.float32) / 255
    return seen


def boards_of(kinds: Kinds) -> Callable[[AnyGame, np.random.Generator], Crops]:
    """Return a function that crops boards of uniformly random cells, so that all kinds are equally frequent."""

    def crop(game: AnyGame, rng: np.random.Generator) -> Crops:
        c, known = game.config, kinds(game)
        drawn = rng.integers(len(known), size=(c.rows, c.columns)).tolist()
        return _cells(game, [[known[kind] for kind in row] for row in drawn], int(rng.integers(2**32)))

    return crop


def dealt_boards(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Crop the cells of a random initial board."""
    assert isinstance(game, BoardGame)
    state = game.start(rng)
    return _cells(game, game.cells(state), state.variation_seed)


@lru_cache
def cells_in_play(game: AnyGame) -> Sequence[Hashable]:
    """Return all distinct cells that occur in random play and oracle play, in a fixed order."""
    assert isinstance(game, BoardGame)
    found: set[Hashable] = set()
    for seed in range(2 * SEEDS):
        episode, rng = Episode(game, seed), np.random.default_rng(seed)
        for _ in range(MOVES):
            found.update(chain.from_iterable(game.cells(episode.state)))
            if episode.ended is not None:
                break
            legal = game.legal_actions(episode.state) or ()
            best = game.best_action(episode.state) if seed % 2 else None
            episode.act(pick(rng, legal) if best is None else best)
    return sorted(found, key=repr)


def picture_corners(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Crop an upper corner, left or right at random, of each of several random jigsaw pictures.

    A crop is a fifth of the picture wide, so that it lies within one patch and shows the same content at every level.
    """
    assert isinstance(game, BoardGame)
    c, box = game.config, game.painter.geometry
    pictures, rights = rng.integers(CORNERED, size=(c.rows, c.columns)), rng.random((c.rows, c.columns)) < 0.5
    cells = [
        list(zip(row, np.where(right, c.columns - 1, 0).tolist())) for row, right in zip(pictures.tolist(), rights)
    ]
    image = game.painter.paint(cells, int(rng.integers(2**32)))
    side, crops = box.cell * max(c.rows, c.columns) // 5, []
    for (row, column), right in np.ndenumerate(rights):
        left, top, width, _ = box.cell_box(row, column)
        left += width - side if right else 0
        crops.append(image[top : top + side, left : left + side])
    return shrink(crops), [
        f"picture {n}, {'right' if right else 'left'}" for n, right in zip(pictures.flat, rights.flat)
    ]


def labelled_parts(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Crop the marks in the last image of a random initial state."""
    state = game.start(rng)
    c, image = game.config, game.images(state)[-1]
    radius, marks = MARKS[game.name](game, state)
    crops, zoom, half = [], c.scale / (1 - c.crop), c.size / 2
    for x, y in marks.values():  # in pixels before the image is cropped and scaled
        edges = [half + (at - half + reach) * zoom for at in (x, y) for reach in (-radius, radius)]
        left, right, top, bottom = (min(max(round(edge), 0), c.size) for edge in edges)
        crops.append(shrink([image[top : max(bottom, top + 1), left : max(right, left + 1)]]))
    return np.concatenate(crops), [*marks]


def _cells(game: AnyGame, cells: Sequence[Sequence[Hashable]], variation_seed: int) -> Crops:
    assert isinstance(game, BoardGame)
    image, geometry = game.painter.paint(cells, variation_seed), game.painter.geometry
    crops, labels = [], []
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            left, top, width, height = geometry.cell_box(row, column)
            crops.append(image[top : top + height, left : left + width])
            labels.append(game.cell_words(cell))
    return shrink(crops), labels
