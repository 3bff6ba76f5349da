"""Shisen-Sho."""
