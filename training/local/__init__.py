"""GRPO and PPO on one machine, on CPU cores or one GPU: `python -m training.local.train`."""
