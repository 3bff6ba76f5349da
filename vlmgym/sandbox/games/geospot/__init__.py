"""Geospot: find where on Earth an image was taken."""
