"""Writing weights: what their libraries raise where a disk is full, told as for any other file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from vlmgym.policies.checkpoint import error_text
from vlmgym.records.files import OutputError, writing

TORCH_WRITER = ("PytorchStreamWriter", "inline_container")
"""One of these is in what `torch.save` raises, a RuntimeError like so many others."""


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn errors of the system, of safetensors and of `torch.save` into one sentence that names the file or folder.

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
        raise OutputError(f"cannot write {path}: not all of it could be written; is the disk full?") from error
