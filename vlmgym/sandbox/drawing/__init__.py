"""Pictures from positions: sprites drawn once with pygame, boards put together from them with NumPy."""
