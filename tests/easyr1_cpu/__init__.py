"""EasyR1 on a CPU: stand-ins for vLLM and FSDP, so that all the rest of it runs; used by the tests in .venv-train."""
