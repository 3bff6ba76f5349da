"""Distributed RL with EasyR1 (Ray, FSDP, vLLM), installed and not forked; see docs/training.md."""
