"""G1 in miniature: a tiny model learns to play whole games from images."""
