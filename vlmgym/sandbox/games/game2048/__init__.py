"""2048: slide tiles to merge equal ones."""
