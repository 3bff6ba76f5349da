"""Mental rotation: find the rotated copy of a figure."""
