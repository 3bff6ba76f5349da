"""Tests on multi-node Ray clusters: `.venv-easyr1/bin/python -m pytest -W default tests/ray_cluster`."""
