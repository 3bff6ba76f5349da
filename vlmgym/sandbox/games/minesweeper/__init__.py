"""Minesweeper: open all cells without a mine."""
