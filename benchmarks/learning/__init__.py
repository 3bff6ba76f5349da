"""Train tiny models and measure what they learn: `python -m benchmarks.learning`."""
