"""Paint boards of cells from cached sprites, repainting only the cells that changed."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import COLOURS, THEMES, Canvas, Theme, ThemeName, blend
from vlmgym.sandbox.drawing.degrade import add_noise
from vlmgym.sandbox.drawing.relief import raise_figures

if TYPE_CHECKING:
    from vlmgym.sandbox.core.board_game import BoardConfig

Grid = Sequence[Sequence[Hashable]]
PaintCell = Callable[[Canvas, Hashable, float], None]
"""Draws a cell, rotated by an angle in degrees, onto a canvas of the cell's size that already shows an empty cell."""

VARIANTS = 32
"""Number of sprites per cell value, each with its own rotation, noise and clutter. The variation seed and the position
of a cell select one."""
CACHED_BYTES = 2**28
"""Maximum size of a painter's sprite cache in bytes; the oldest sprite is evicted first."""


@dataclass(frozen=True, slots=True)
class BoardGeometry:
    """Board layout in pixels. Grid have side `cell`; one starts every `pitch` pixels, the first at (`left`, `top`)."""

    rows: int
    columns: int
    left: int
    top: int
    pitch: int
    gap: int
    cell: int

    @classmethod
    def of(cls, size: int, rows: int, columns: int, coordinates: bool, joined: bool = False) -> BoardGeometry:
        """Centre a board in an image of size x size pixels.

        With `coordinates`, leave room for them above and to the left. With `joined`, leave no gaps between cells.
        """
        margin = max(2, size // 40)
        band = max(8, size // 22) if coordinates else 0
        room = size - 2 * margin - band
        longer = max(rows, columns)
        gap = 0 if joined else max(1, room // longer // 14)
        pitch = (room - gap) // longer
        left = band + (size - band - pitch * columns - gap) // 2 + gap
        top = band + (size - band - pitch * rows - gap) // 2 + gap
        return cls(rows, columns, left, top, pitch, gap, pitch - gap)

    def cell_at(self, x: int, y: int) -> tuple[int, int] | None:
        """Row and column of the cell at a pixel (the gap after a cell counts as part of it); None if off the board."""
        row, column = (y - self.top) // self.pitch, (x - self.left) // self.pitch
        inside = 0 <= row < self.rows and 0 <= column < self.columns
        return (row, column) if inside else None

    def cell_box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """Left, top, width and height of a cell in pixels."""
        return self.left + column * self.pitch, self.top + row * self.pitch, self.cell, self.cell


class BoardPainter:
    """Paints boards of one style, caching up to `CACHED_BYTES` of sprites."""

    def __init__(
        self,
        style: BoardConfig,
        paint_cell: PaintCell,
        joined: bool = False,
        themes: Mapping[ThemeName, Theme] = THEMES,
        geometry: BoardGeometry | None = None,
    ) -> None:
        """Create a painter; with `joined`, there are no gaps between cells. By default, the board is in the middle."""
        self.style, self._joined = style, joined
        self.theme = themes[style.theme]
        self._paint_cell = paint_cell
        self._plain = not (style.rotation or style.noise or style.clutter)
        self.geometry = geometry or BoardGeometry.of(style.size, style.rows, style.columns, style.coordinates, joined)
        self._background = self._paint_background()
        self._sprites: OrderedDict[tuple[Hashable, int], NDArray[np.uint8]] = OrderedDict()

    def paint(
        self, cells: Grid, variation_seed: int = 0, out: NDArray[np.uint8] | None = None, before: Grid | None = None
    ) -> NDArray[np.uint8]:
        """Paint a board, given as rows x columns, and return the image, uint8 of shape (size, size, 3).

        Args:
            cells: Value of each cell.
            variation_seed: Seed for rotation, noise and clutter.
            out: Array to paint into. Default: a new one.
            before: Grid that `out` already shows, with the same variation seed; only cells that differ are repainted.
        """
        if out is None or before is None:
            if out is None:
                out = np.empty_like(self._background)
            np.copyto(out, self._background)
        side, pitch, left, top = self.geometry.cell, self.geometry.pitch, self.geometry.left, self.geometry.top
        for row, line in enumerate(cells):
            line_before = None if before is None else before[row]
            if line_before == line:
                continue
            y = top + row * pitch
            for column, cell in enumerate(line):
                if line_before is not None and line_before[column] == cell:
                    continue
                x = left + column * pitch
                key = (cell, 0 if self._plain else _mix(variation_seed, row, column) % VARIANTS)
                if (sprite := self._sprites.get(key)) is None:
                    sprite = self._sprites[key] = self._draw_sprite(*key)
                    if len(self._sprites) * sprite.nbytes > CACHED_BYTES:
                        self._sprites.popitem(last=False)
                out[y : y + side, x : x + side] = sprite
        return out

    def _draw_sprite(self, cell: Hashable, variant: int) -> NDArray[np.uint8]:
        style, side = self.style, self.geometry.cell
        # Seeded by the value of the cell, so that rotation, clutter and noise reveal nothing about other cells.
        rng = np.random.default_rng([variant, zlib.crc32(repr(cell).encode())])
        canvas = Canvas(side, side, self.theme.board, font=style.font)
        canvas.rectangle(0, 0, side, side, self.theme.empty, radius=0 if self._joined else side * 0.09)
        angle = int(rng.integers(-style.rotation, style.rotation + 1))
        self._paint_cell(canvas, cell, angle)
        colours = list(COLOURS.values())
        for _ in range(style.clutter):
            x0, y0, x1, y1 = (float(v) / 1000 * side for v in rng.integers(0, 1001, 4))
            colour = blend(colours[int(rng.integers(len(colours)))], self.theme.empty, 0.35)
            canvas.line((x0, y0), (x1, y1), max(1.0, side / 28), colour)
        pixels = canvas.pixels()
        if style.relief:
            pixels = raise_figures(pixels, (self.theme.empty, self.theme.board), style.relief, self._joined)
        pixels = add_noise(pixels, style.noise, rng)
        pixels.flags.writeable = False
        return pixels

    def _paint_background(self) -> NDArray[np.uint8]:
        style, board = self.style, self.geometry
        canvas = Canvas(style.size, style.size, self.theme.page, font=style.font)
        edge = max(2, style.size // 120) if self._joined else board.gap
        left, top = board.left - edge, board.top - edge
        width, height = (
            board.pitch * style.columns - board.gap + 2 * edge,
            board.pitch * style.rows - board.gap + 2 * edge,
        )
        canvas.rectangle(left, top, width, height, self.theme.board, radius=edge + board.cell * 0.09)
        if style.coordinates:
            capitals = min(style.size / 44, board.cell * 0.4)
            for column in range(style.columns):
                x, _, side, _ = board.cell_box(0, column)
                canvas.text(str(column + style.origin), x + side / 2, top - capitals * 1.2, capitals, self.theme.label)
            for row in range(style.rows):
                _, y, side, _ = board.cell_box(row, 0)
                canvas.text(str(row + style.origin), left - capitals * 1.2, y + side / 2, capitals, self.theme.label)
        return canvas.pixels()


def _mix(variation_seed: int, row: int, column: int) -> int:
    """Hash a seed and a cell position with splitmix64's increment and finaliser (Steele et al., 2014)."""
    value = (variation_seed << 16 | row << 8 | column) * 0x9E3779B97F4A7C15 & _64_BITS
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _64_BITS
    return value ^ value >> 31


_64_BITS = 2**64 - 1
