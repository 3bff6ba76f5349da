"""Caption: describe an image."""
