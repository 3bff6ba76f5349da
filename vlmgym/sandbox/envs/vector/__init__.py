"""Vector environments and their workers."""
