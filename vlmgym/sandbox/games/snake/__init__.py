"""Snake."""
