"""A person at a window: what they press, click and type becomes responses."""
