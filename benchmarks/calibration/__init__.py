"""Measure, without a language model, how each difficulty level affects play and image reading."""
