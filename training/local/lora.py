"""Low-rank adapters (Hu et al. 2021, https://arxiv.org/abs/2106.09685) by peft, on the language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""All linear layers of the language model; the vision encoder stays as it is."""


def with_lora(model: Any, rank: int) -> Any:
    """The model wrapped by adapters of a rank, with alpha = 2 rank; only these are trained."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=LAYERS))


def merged_weights(adapters: Any, model: Any, folder: Path) -> None:
    """Save the model with its adapters merged into the weights, which stay as they are in memory.

    Args:
        adapters: From `with_lora`.
        model: The model inside.
        folder: Where to.
    """
    adapters.merge_adapter()
    try:
        weights = {name: tensor for name, tensor in model.state_dict().items() if "lora_" not in name}
        plain = {name.replace(".base_layer.", "."): tensor for name, tensor in weights.items()}
        model.save_pretrained(folder, state_dict=plain)
    finally:
        adapters.unmerge_adapter()
