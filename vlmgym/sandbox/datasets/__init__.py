"""The data behind the single-step tasks: tables of rows that are read one at a time, and the pictures they name."""

from vlmgym.sandbox.datasets.keeping import keep

__all__ = ["keep"]
