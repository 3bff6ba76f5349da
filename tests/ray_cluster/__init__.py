"""Ray clusters of several nodes: `.venv-train/bin/python -m pytest -W default tests/ray_cluster`."""
