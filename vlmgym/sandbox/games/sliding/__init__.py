"""Sliding-tile puzzle."""
