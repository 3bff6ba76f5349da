"""Colored shapes shared by Shisen-Sho and Swap."""
