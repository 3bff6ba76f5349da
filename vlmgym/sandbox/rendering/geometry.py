"""Pixel layout of the cells of a board in its square image."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoardGeometry:
    """Board layout in pixels: cells with side `cell`, spaced by `pitch`, the first at (`left`, `top`)."""

    rows: int
    columns: int
    left: int
    top: int
    pitch: int
    gap: int
    cell: int

    @classmethod
    def of(cls, size: int, rows: int, columns: int, coordinates: bool) -> BoardGeometry:
        """Centre a board in a size x size image, with room for coordinates above and to the left."""
        margin = max(2, size // 40)
        band = max(8, size // 22) if coordinates else 0
        room = size - 2 * margin - band
        longer = max(rows, columns)
        gap = max(1, room // longer // 14)
        pitch = (room - gap) // longer
        left = band + (size - band - pitch * columns - gap) // 2 + gap
        top = band + (size - band - pitch * rows - gap) // 2 + gap
        return cls(rows, columns, left, top, pitch, gap, pitch - gap)

    def cell_at(self, x: int, y: int) -> tuple[int, int] | None:
        """(row, column) of the cell at a pixel, or None outside the board."""
        row, column = (y - self.top) // self.pitch, (x - self.left) // self.pitch
        inside = 0 <= row < self.rows and 0 <= column < self.columns
        return (row, column) if inside else None

    def cell_box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """Left, top, width and height of a cell in pixels."""
        return self.left + column * self.pitch, self.top + row * self.pitch, self.cell, self.cell
