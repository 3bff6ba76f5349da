"""GRPO and PPO in a single process, on a CPU or one GPU: `python -m training.local.train`."""
