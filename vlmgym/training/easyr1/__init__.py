"""Distributed RL with EasyR1 (Ray, FSDP, vLLM), installed unmodified; see docs/training.md."""
