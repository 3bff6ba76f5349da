"""Tables of questions and the images they refer to, read one row at a time."""

from vlmgym.sandbox.datasets.save import save_table

__all__ = ["save_table"]
