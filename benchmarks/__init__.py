"""Measurements for maintainers; the package never imports them."""
