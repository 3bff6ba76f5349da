"""Token-by-token forward passes of a Qwen-VL, with much less overhead than transformers' own.

For small models, transformers' forward pass of one token is mostly overhead: it builds a mask and rotary embeddings,
copies the cache to append to it and, if prompts are padded, repeats keys for every query head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F


class Decoder:
    """Extends sequences by one token at a time, with a cache that is allocated once.

    All new tokens are text, whose position ids are equal along time, height and width, so Qwen-VL's multimodal rotary
    embeddings reduce to ordinary ones.
    """

    def __init__(
        self, model: Any, cache: Any, rows: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, steps: int
    ) -> None:
        """Copy the cache of prefilled prompts.

        Args:
            model: Language model.
            cache: transformers' cache of the prompts, which is emptied.
            rows: Index of each sequence's prompt in the cache, shape (sequences,).
            mask: Attention mask of each sequence's prompt, shape (sequences, longest prompt).
            positions: Position id of each sequence's first new token, shape (sequences, 1).
            steps: Maximum number of new tokens.
        """
        self._model = model
        self._length = mask.shape[1]
        self._cached: list[torch.Tensor] = []
        """Keys and values of each layer in turn."""
        for layer in cache.layers:
            self._cached += [_copy_with_room(tensor, rows, steps) for tensor in (layer.keys, layer.values)]
            layer.keys = layer.values = None  # frees memory before the next layer is copied
        positions = positions + torch.arange(steps, device=positions.device)
        cos, sin = model.rotary_emb(self._cached[0], positions.expand(3, *positions.shape))
        if cos.ndim == 4:  # Qwen2-VL and Qwen2.5-VL in transformers 4
            cos, sin = cos[0], sin[0]
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)  # see `_rotate`
        self._rotary = [cos[:, :, None], sin[:, :, None]]
        """Cosines and sines, shape (sequences, steps, 1, head size)."""
        self._mask: list[torch.Tensor] = []
        """Empty unless prompts are padded; otherwise one tensor, added to attention scores: -inf for padding."""
        if not mask.all():
            visible = F.pad(mask.bool(), (0, steps), value=True)[:, None, None]
            self._mask = [torch.zeros_like(visible, dtype=cos.dtype).masked_fill_(~visible, -torch.inf)]
        self._step = 0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append a token to each sequence and return its hidden states, shape (sequences, width)."""
        rows, model = len(tokens), self._model
        cos, sin = (table[:, self._step] for table in self._rotary)
        self._step += 1
        last = self._length + self._step
        mask = self._mask[0][..., :last] if self._mask else None
        hidden: torch.Tensor = model.embed_tokens(tokens)
        for layer, keys, values in zip(model.layers, self._cached[::2], self._cached[1::2]):
            attention, size = layer.self_attn, keys.shape[-1]
            normed = layer.input_layernorm(hidden)
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            query, key, value = (project(normed).view(rows, -1, size) for project in projections)
            if hasattr(attention, "q_norm"):  # Qwen3-VL
                query, key = attention.q_norm(query), attention.k_norm(key)
            keys[:, :, last - 1] = _rotate(key, cos, sin)
            values[:, :, last - 1] = value
            # The heads that share a key are passed as consecutive queries: none of them needs a causal mask.
            query = _rotate(query, cos, sin).view(rows, keys.shape[1], -1, size)
            attended = F.scaled_dot_product_attention(query, keys[:, :, :last], values[:, :, :last], mask)
            hidden = hidden + attention.o_proj(attended.reshape(rows, -1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        normed_hidden: torch.Tensor = model.norm(hidden)
        return normed_hidden

    def drop(self, finished: Sequence[int]) -> list[int]:
        """Drop finished sequences and return the previous indices of those left, in their new order.

        The last sequences move into the gaps, because copying all others would take as long as decoding a token.
        """
        count = len(self._cached[0])
        order = list(range(count - len(finished)))
        gaps = [row for row in finished if row < len(order)]
        moved = sorted({*range(len(order), count)} - {*finished})
        for gap, row in zip(gaps, moved):
            order[gap] = row
        to, source = torch.tensor([gaps, moved], dtype=torch.int64, device=self._cached[0].device)
        for tensors in (self._cached, self._rotary, self._mask):
            for number, tensor in enumerate(tensors):
                tensor[to] = tensor[source]
                tensors[number] = tensor[: len(order)]
        return order


def _copy_with_room(cached: torch.Tensor, rows: torch.Tensor, steps: int) -> torch.Tensor:
    """Copy rows of cached keys or values, with room for more steps: (rows, heads, tokens + steps, head size)."""
    _, heads, length, size = cached.shape
    room = cached.new_empty(len(rows), heads, length + steps, size)
    room[:, :, :length] = cached[rows]
    return room


def _rotate(vectors: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary embeddings to vectors of shape (rows, heads, size); the first half of `sin` is negated."""
    return vectors * cos + vectors.roll(vectors.shape[-1] // 2, -1) * sin
