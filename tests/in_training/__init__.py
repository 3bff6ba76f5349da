"""Tests that need torch: `.venv-train/bin/python -m pytest -W default tests/in_training`."""
