"""Geospot: locate a photograph or a marked city."""
