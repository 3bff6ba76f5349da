"""Drawing primitives, image degradation and encoding."""
