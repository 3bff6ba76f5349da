"""Four in a row."""
