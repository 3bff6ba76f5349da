"""NLVR2: judge whether a statement about two images is true."""
