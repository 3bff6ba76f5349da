"""Solitaire."""
