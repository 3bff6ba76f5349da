"""EasyR1 on a CPU: stand-ins for vLLM and FSDP, so that all other code of EasyR1 runs in tests in .venv-easyr1."""
