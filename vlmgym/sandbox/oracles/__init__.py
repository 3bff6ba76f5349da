"""Searches behind `best_action`, one file a game."""
