"""File names in a checkpoint, and uniform errors for files that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from vlmgym.policies.checkpoint import error_text
from vlmgym.runs.files import OutputError, writing

PROCESSOR_FILES = (
    "config.json",  # copied unchanged, because versions of transformers write it differently
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "generation_config.json",
)
"""Files besides the weights that a checkpoint needs to be served."""
TORCH_WRITER = ("PytorchStreamWriter", "inline_container")
"""Names in the message of the RuntimeError that `torch.save` raises when it cannot write."""


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn errors of the file system, safetensors and `torch.save` into an `OutputError` that names the path."""
    try:
        with writing(path):
            yield
    except SafetensorError as error:
        raise OutputError(f"cannot write {path}: {error_text(error)}") from error
    except RuntimeError as error:
        if not any(name in str(error) for name in TORCH_WRITER):
            raise
        raise OutputError(f"cannot write {path}: the file is incomplete; is the disk full?") from error
