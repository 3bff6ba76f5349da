"""Corridors: a maze seen through the eyes of the player."""
