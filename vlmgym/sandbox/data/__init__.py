"""Read questions and their images from tables, one row at a time."""

from vlmgym.sandbox.data.save import save_table

__all__ = ["save_table"]
