"""Measurements for maintainers. The package vlmgym never imports them."""
