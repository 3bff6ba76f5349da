"""Lights out: switch off all lamps."""
