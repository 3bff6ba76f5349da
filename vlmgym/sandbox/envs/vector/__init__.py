"""The vectorized environment and its workers."""
