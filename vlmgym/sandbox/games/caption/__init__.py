"""Caption: describe a photograph."""
