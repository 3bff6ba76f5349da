"""One page that ranks runs of a suite."""
