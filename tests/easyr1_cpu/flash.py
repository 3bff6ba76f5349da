"""Plain torch versions of the flash-attn functions that EasyR1 uses for packed batches; the originals need a GPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from verl.models.transformers import flash_attention_utils
from verl.workers.actor import dp_actor
from verl.workers.critic import dp_critic


def install(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Replace flash-attn's functions.

    Returns:
        A list that receives the sequence boundaries of a packed row on each attention call.
    """
    packed: list[list[int]] = []

    def attend_packed(query: Any, key: Any, value: Any, cu_seqlens_q: Any, softmax_scale: float, **_: Any) -> Any:
        packed.append(cu_seqlens_q.tolist())
        spans = pairwise(cu_seqlens_q)
        return torch.cat([attend(query[a:b], key[a:b], value[a:b], softmax_scale) for a, b in spans])

    padding = {"rearrange": dp_actor.rearrange, "unpad_input": unpad_input, "pad_input": pad_input}
    padding["index_first_axis"] = lambda rows, places: rows[places]
    for module in (dp_actor, dp_critic):
        for name, function in padding.items():
            monkeypatch.setattr(module, name, function, raising=False)
    attention = {
        "flash_attn_varlen_func": attend_packed,
        "fa_peft_integration_check": lambda *states, target_dtype: states,  # converts float32 to bfloat16
        "_flash_supports_window_size": False,
        "_flash_supports_deterministic": False,
        "_flash_use_top_left_mask": False,
    }
    for name, value in attention.items():
        monkeypatch.setattr(flash_attention_utils, name, value, raising=False)
    return packed


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Compute causal attention for one sequence; shapes (tokens, heads, size)."""
    states = (states.transpose(0, 1) for states in (query, key, value))
    return scaled_dot_product_attention(*states, is_causal=True, scale=scale, enable_gqa=True).transpose(0, 1)


def unpad_input(rows: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack rows of shape (batch, length, ...) into (tokens, ...); also return the indices of the tokens."""
    places = mask.flatten().nonzero().flatten()
    return rows.flatten(0, 1)[places], places


def pad_input(hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """Invert `unpad_input`."""
    whole = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    whole[indices] = hidden_states
    return whole.unflatten(0, (batch, seqlen))
