"""Tests on multi-node Ray clusters: `.venv-train/bin/python -m pytest -W default tests/ray_cluster`."""
