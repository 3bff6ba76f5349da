"""Matching pairs."""
