"""Mental rotation: find the figure that is the same, only rotated."""
