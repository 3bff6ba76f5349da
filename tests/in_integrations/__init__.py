"""Tests of adapters with the packages that they adapt to, in .venv-integrations and .venv-verifiers."""
