"""Distributed reinforcement learning by EasyR1 (Ray, FSDP, vLLM), which is installed, not forked; docs/training.md."""
