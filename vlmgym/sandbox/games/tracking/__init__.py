"""Tracking: follow moving balls over several images."""
