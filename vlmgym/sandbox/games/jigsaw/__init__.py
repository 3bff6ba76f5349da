"""Jigsaw: swap patches until the picture is whole."""
