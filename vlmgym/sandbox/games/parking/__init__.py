"""Parking."""
