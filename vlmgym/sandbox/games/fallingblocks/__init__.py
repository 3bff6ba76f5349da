"""Falling blocks: place falling pieces so that rows fill up and vanish."""
