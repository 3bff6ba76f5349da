"""Games as Gymnasium environments: single, vectorized and played by hand."""
