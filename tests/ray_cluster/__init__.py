"""Ray clusters of several nodes on this machine; used by `tests/test_ray.py`, in .venv-train."""
