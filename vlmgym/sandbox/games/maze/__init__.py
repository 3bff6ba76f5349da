"""Maze: walk to the exit."""
