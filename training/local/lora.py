"""Low-rank adapters (Hu et al. 2021, https://arxiv.org/abs/2106.09685) by peft, on the language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""All linear layers of the language model; the vision encoder stays as it is."""


def with_lora(model: Any, rank: int) -> Any:
    """The model wrapped by adapters of a rank, with alpha = 2 rank; only these are trained."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=LAYERS))


def save_adapters(adapted: Any, folder: Path) -> None:
    """Write what `with_lora` gave in peft's form, without the weights that it adapts."""
    adapted.save_pretrained(folder)


def load_adapters(adapted: Any, folder: Path) -> None:
    """Put back what `save_adapters` wrote.

    Raises:
        ValueError: It is of another model, or of another rank.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    state = load_file(folder / "adapter_model.safetensors")
    expected = get_peft_model_state_dict(adapted)
    if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in expected.items()}:
        raise ValueError("it is of another model, or of adapters of another rank")
    set_peft_model_state_dict(adapted, state)


def save_merged(model: Any, folder: Path) -> None:
    """Save a model with its adapters added to the weights; in memory nothing changes, not even by rounding.

    Args:
        model: The model inside what `with_lora` gave.
        folder: Where to.
    """
    from peft.tuners.lora import LoraLayer

    layers = {
        f"{name}.base_layer.weight": layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)
    }
    weights = {}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if "lora_" in name:
                continue
            if (layer := layers.get(name)) is not None:  # one at a time: all together are as large as the model
                added = sum(layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
                tensor = (tensor + added).to(tensor.dtype).cpu()
            weights[name.replace(".base_layer.", ".")] = tensor
    model.save_pretrained(folder, state_dict=weights)
