"""The gallery: every game at every level, as a page and as a poster."""
