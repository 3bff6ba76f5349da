"""Falling blocks."""
