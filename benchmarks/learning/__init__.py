"""What a tiny model learns: `python -m benchmarks.learning`."""
