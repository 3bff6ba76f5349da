"""Read questions and their images from tables, one row at a time."""
