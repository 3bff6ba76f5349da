"""Drawing, degradation and encoding of images."""
