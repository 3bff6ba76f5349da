"""Tests that need torch: tests/test_local_training.py runs each file by the Python that training has."""
