"""Tests of adapters with the packages that they adapt to, in .venv-integrations or .venv-verifiers."""
