"""Maze."""
