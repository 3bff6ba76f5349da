"""Uniform errors for weights that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from vlmgym.policies.checkpoint import error_text
from vlmgym.records.files import OutputError, writing

TORCH_WRITER = ("PytorchStreamWriter", "inline_container")
"""Names in the message of the RuntimeError that `torch.save` raises when it cannot write."""


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn errors of the file system, safetensors and `torch.save` into one that names the file or folder.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        with writing(path):
            yield
    except SafetensorError as error:
        raise OutputError(f"cannot write {path}: {error_text(error)}") from error
    except RuntimeError as error:
        if not any(name in str(error) for name in TORCH_WRITER):
            raise
        raise OutputError(f"cannot write {path}: the file is incomplete; is the disk full?") from error
