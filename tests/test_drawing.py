"""Canvas, board geometry, and boards painted from cached sprites."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import game_ids, make_game
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.drawing import board as board_module
from vlmgym.sandbox.drawing.board import BoardGeometry, BoardPainter
from vlmgym.sandbox.drawing.canvas import Canvas

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


# Geometry ---------------------------------------------------------------------------------------------------------

sizes = st.tuples(st.integers(64, 2048), st.integers(1, 16), st.integers(1, 16), st.booleans()).filter(
    lambda s: BoardGeometry.of(*s).cell >= 8
)


@given(sizes, st.data())
def test_cells_are_disjoint_and_found_by_their_pixels(size: tuple[int, int, int, bool], data: st.DataObject) -> None:
    board = BoardGeometry.of(*size)
    row, column = data.draw(st.integers(0, board.rows - 1)), data.draw(st.integers(0, board.columns - 1))
    left, top, width, height = board.cell_box(row, column)
    assert width == height == board.cell
    assert board.gap <= left
    assert board.gap <= top
    assert left + width + board.gap <= size[0]
    assert top + height + board.gap <= size[0]
    for x, y in ((left, top), (left + width - 1, top + height - 1), (left + width // 2, top + height // 2)):
        assert board.cell_at(x, y) == (row, column)
    assert board.cell_at(left - board.pitch * (column + 1), top) is None
    assert board.cell_at(left, size[0] + board.pitch * board.rows) is None


# Painting ---------------------------------------------------------------------------------------------------------


def test_incremental_drawing_equals_full_drawing() -> None:
    for game_id in game_ids():
        for perception in (1, 4):
            game = make_game(game_id, perception, size=256)
            if not isinstance(game, BoardGame):
                continue
            rng = np.random.default_rng(0)
            state = game.start(rng)
            out = np.zeros((256, 256, 3), dtype=np.uint8)
            game.painter.paint(game.cells(state), game.variation_seed(state), out=out)
            for _ in range(10):
                legal = game.legal_actions(state)
                if not legal:
                    break
                after = game.step(state, legal[int(rng.integers(len(legal)))], rng).state
                game.painter.paint(game.cells(after), game.variation_seed(after), out=out, before=game.cells(state))
                np.testing.assert_array_equal(out, game.draw(after))
                state = after


def paint_square(canvas: Canvas, cell: Hashable, angle: float) -> None:
    if cell:
        canvas.rectangle(canvas.width / 4, canvas.height / 4, canvas.width / 2, canvas.height / 2, RED)


def painter_of(**overrides: Any) -> BoardPainter:
    style: Any = BoardConfig(**overrides)
    return BoardPainter(style, paint_square)


def test_only_changed_cells_are_repainted() -> None:
    painter = painter_of(size=100, rows=2, columns=2)
    before, after = ((0, 1), (1, 0)), ((0, 1), (1, 1))
    out = np.full((100, 100, 3), 7, dtype=np.uint8)
    painter.paint(after, out=out, before=before)
    left, top, side, _ = painter.geometry.cell_box(1, 1)
    assert (out[top : top + side, left : left + side] != 7).any()
    out[top : top + side, left : left + side] = 7
    assert (out == 7).all()


def test_images_do_not_depend_on_the_sprite_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "CACHED_BYTES", 5 * 35 * 35 * 3)
    overrides = {"size": 120, "rows": 3, "columns": 3, "noise": 0.2, "rotation": 20, "clutter": 3}
    cells = ((0, 1, 0), (1, 1, 1), (0, 0, 1))
    used = painter_of(**overrides)
    for variation_seed in range(10):
        used.paint(cells, variation_seed)
    np.testing.assert_array_equal(used.paint(cells, 3), painter_of(**overrides).paint(cells, 3))
    assert len(used._sprites) == 5
