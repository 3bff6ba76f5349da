"""Records of episodes and runs, and their folders."""
