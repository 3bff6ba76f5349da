"""Tests of adapters with the packages they adapt to, in the environments that tests/conftest.py lists."""
