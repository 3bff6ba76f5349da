"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: less memory for images, and faster embedding and decoding.

For small models, transformers' forward pass of one token is mostly overhead: it builds a mask and rotary embeddings,
copies the cache to append to it and, if prompts are padded, repeats keys for every query head.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F
from transformers import AutoImageProcessor, AutoTokenizer

from vlmgym.training.engine.families import EncodedPrompt, Family, Prefill

PATCHES_AT_ONCE = 128
"""Patches that a CPU normalises together, few enough to fit into its cache."""


class QwenVL(Family):
    """Qwen-VL models, whose images are sequences of patches. Loads neither torchvision nor a video processor.

    The images of a prompt are `patches`, the pixels before normalisation, uint8, shape (patches, channels, pixels per
    patch), and `image_grid_thw`, the number of patches of each image along time, height and width, int64, shape
    (images, 3). The patches take an eighth of the memory of the model's float32 input, which also repeats each patch
    for a second frame; this matters because all prompts of a step are kept.
    """

    def load(self, folder: Path) -> None:
        """Load tokenizer and image processor."""
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self._levels = self._normalised_levels()
        self._token_ids = lru_cache(maxsize=256)(self._tokenize)  # many prompts differ only in their images

    def encode(self, chat: str, images: Sequence[Image.Image]) -> EncodedPrompt:
        """Encode a prompt in the chat format of the model, with its images in order."""
        if not images:
            return EncodedPrompt(self._token_ids(chat), {})
        features = self.image_processor(list(images), return_tensors="np", do_rescale=False, do_normalize=False)
        grids, pixels = features["image_grid_thw"].astype(np.int64), features["pixel_values"]
        frames = pixels.reshape(len(pixels), len(self._levels), self.image_processor.temporal_patch_size, -1)
        patches = torch.from_numpy(frames[:, :, 0].astype(np.uint8))  # all frames of an image are equal
        token = self.tokenizer.convert_ids_to_tokens(self.image_token)
        start, *rest = chat.split(token)
        counts = grids.prod(axis=1) // self.image_processor.merge_size**2
        expanded = start + "".join(token * int(count) + part for count, part in zip(counts, rest))
        return EncodedPrompt(self._token_ids(expanded), {"patches": patches, "image_grid_thw": torch.from_numpy(grids)})

    def _tokenize(self, chat: str) -> torch.Tensor:
        ids: torch.Tensor = self.tokenizer(chat, add_special_tokens=False, return_tensors="pt")["input_ids"][0]
        return ids

    def collate_images(self, prompts: Sequence[EncodedPrompt], device: torch.device) -> dict[str, torch.Tensor]:
        """Return pixel_values and image_grid_thw of all images."""
        shown = [prompt.images for prompt in prompts if prompt.images]
        if not shown:
            return {}
        patches = torch.cat([images["patches"] for images in shown]).to(device)
        grids = torch.cat([images["image_grid_thw"] for images in shown]).to(device)
        return {"pixel_values": self.pixel_values(patches), "image_grid_thw": grids}

    def pixel_values(self, patches: torch.Tensor) -> torch.Tensor:
        """Normalise patches to float32, shape (patches, values per patch), on the same device."""
        count = self._levels.shape[1]
        levels = self._levels.flatten().to(patches.device)
        offsets = count * torch.arange(len(self._levels), dtype=torch.int32, device=patches.device)[:, None]
        shape = (len(patches), len(self._levels), self.image_processor.temporal_patch_size, patches.shape[-1])
        values = torch.empty(shape, device=patches.device)
        size = PATCHES_AT_ONCE if patches.device.type == "cpu" else len(patches)
        for part, target in zip(patches.split(size), values.split(size)):
            target.copy_(levels.index_select(0, (part + offsets).flatten()).view(part.shape).unsqueeze(2))
        return values.flatten(1)

    def _normalised_levels(self) -> torch.Tensor:
        """Tabulate the normalised value of each pixel value: float32, shape (channels, 256)."""
        processor, pixels = self.image_processor, np.tile(np.arange(256, dtype=np.uint8), (3, 1, 1))
        scaled = processor.rescale(pixels, processor.rescale_factor)
        levels = processor.normalize(scaled, processor.image_mean, processor.image_std)
        return torch.from_numpy(levels[:, 0].astype(np.float32))

    def prepare(self, model: Any) -> None:
        """Embed patches with a linear layer. They do not overlap, so it equals the convolution, and is much faster."""
        patches = model.model.visual.patch_embed
        patches.forward = types.MethodType(_embed_patches, patches)

    def decoder(self, model: Any, prefill: Prefill, steps: int) -> Any:
        """Return a `QwenDecoder`; for Qwen3.5, most of whose layers have linear attention, transformers' decoder."""
        text = self.text_model(model)
        if "linear_attention" in (getattr(text.config, "layer_types", None) or ()):
            return super().decoder(model, prefill, steps)
        return QwenDecoder(text, prefill, steps)


def _embed_patches(embedding: Any, patches: torch.Tensor) -> torch.Tensor:
    """Embed patches of shape (patches, values per patch); replaces the `forward` of transformers' patch embedding."""
    return F.linear(patches.to(embedding.proj.weight.dtype), embedding.proj.weight.flatten(1), embedding.proj.bias)


class QwenDecoder:
    """Extends sequences by one token at a time, with a cache that is allocated once.

    All new tokens are text, whose position ids are equal along time, height and width, so Qwen-VL's multimodal rotary
    embeddings reduce to ordinary ones.
    """

    def __init__(self, model: Any, prefill: Prefill, steps: int) -> None:
        """Copy the cache of prefilled prompts, which is emptied.

        Args:
            model: Language model.
            prefill: The prompts.
            steps: Maximum number of new tokens.
        """
        self._model = model
        rows, mask = prefill.rows, prefill.mask
        self._length = mask.shape[1]
        self._cached: list[torch.Tensor] = []
        """Keys and values of each layer in turn."""
        for layer in prefill.cache.layers:
            self._cached += [_copy_with_room(tensor, rows, steps) for tensor in (layer.keys, layer.values)]
            layer.keys = layer.values = None  # frees memory before the next layer is copied
        positions = prefill.positions + torch.arange(steps, device=mask.device)
        cos, sin = model.rotary_emb(self._cached[0], positions.expand(3, *positions.shape))
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
            normed = _normalise(layer.input_layernorm, hidden)
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            query, key, value = (project(normed).view(rows, -1, size) for project in projections)
            if hasattr(attention, "q_norm"):  # Qwen3-VL
                query, key = _normalise(attention.q_norm, query), _normalise(attention.k_norm, key)
            keys[:, :, last - 1] = _rotate(key, cos, sin)
            values[:, :, last - 1] = value
            # The heads that share a key are passed as consecutive queries: none of them needs a causal mask.
            query = _rotate(query, cos, sin).view(rows, keys.shape[1], -1, size)
            attended = F.scaled_dot_product_attention(query, keys[:, :, :last], values[:, :, :last], mask)
            hidden = hidden + attention.o_proj(attended.reshape(rows, -1))
            hidden = hidden + layer.mlp(_normalise(layer.post_attention_layernorm, hidden))
        return _normalise(model.norm, hidden)

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


def _normalise(norm: Any, vectors: torch.Tensor) -> torch.Tensor:
    """Apply an RMSNorm of transformers, whose `forward` does the same in five operations."""
    return F.rms_norm(vectors, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(vectors: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary embeddings to vectors of shape (rows, heads, size); the first half of `sin` is negated."""
    return vectors * cos + vectors.roll(vectors.shape[-1] // 2, -1) * sin
