"""GRPO and PPO in one process, on a CPU or one GPU; `python -m training.local.train` begins."""
