"""Files of a checkpoint: weights, low-rank adapters (https://arxiv.org/abs/2106.09685), and errors of writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers.utils.logging import disable_progress_bar

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
    disable_progress_bar()  # of transformers, for files that are written in a moment
    try:
        with writing(path):
            yield
    except SafetensorError as error:
        raise OutputError(f"cannot write {path}: {error_text(error)}") from error
    except RuntimeError as error:
        if not any(name in str(error) for name in TORCH_WRITER):
            raise
        raise OutputError(f"cannot write {path}: the file is incomplete; is the disk full?") from error


def add_lora(model: Any, rank: int, layers: str) -> Any:
    """Add adapters of the given rank, with alpha = 2 x rank, to a model, and freeze all other weights.

    `layers` is a regular expression of the layers' names.
    """
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=layers))


def load_adapters(adapted: Any, folder: Path) -> None:
    """Load adapters saved by the wrapped model's `save_pretrained`.

    Raises:
        ValueError: The adapters belong to another model or rank.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    state = load_file(folder / "adapter_model.safetensors")
    expected = get_peft_model_state_dict(adapted)
    if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in expected.items()}:
        raise ValueError("the adapters belong to another model or rank")
    set_peft_model_state_dict(adapted, state)


def save_merged(model: Any, folder: Path) -> None:
    """Save the base model with its adapters merged into the weights; the model in memory is unchanged."""
    from peft.tuners.lora import LoraLayer

    layers = {
        f"{name}.base_layer.weight": layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)
    }
    weights = {}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if "lora_" in name:
                continue
            if (layer := layers.get(name)) is not None:  # one at a time: the deltas together are as large as the model
                delta = sum(layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
                tensor = (tensor + delta).to(tensor.dtype).cpu()
            weights[name.replace(".base_layer.", ".")] = tensor
    model.save_pretrained(folder, state_dict=weights)
