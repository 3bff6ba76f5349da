"""Lights out."""
