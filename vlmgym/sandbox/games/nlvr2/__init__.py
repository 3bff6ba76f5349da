"""NLVR2: judge a statement about two images."""
