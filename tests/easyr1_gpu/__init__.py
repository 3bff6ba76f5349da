"""EasyR1's worker and vLLM themselves, in .venv-easyr1 with the packages for GPUs, but on a CPU."""
