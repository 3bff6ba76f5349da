"""Model families: what differs between vision-language models in training on one machine.

`Family` is the default for any model in transformers that continues text from its own cache: its processor encodes the
images, and transformers' own forward pass decodes. To add a family, subclass it, override what the new models need or
what can be faster, and list the class in `FAMILIES`; docs/models.md describes the steps and the tests.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from transformers import AutoProcessor, DynamicCache
from transformers.cache_utils import LinearAttentionLayer

from vlmgym.policies.local_model import image_token_ids

TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")
"""Inputs that tell a model which tokens stand for images."""
NOT_IMAGES = ("input_ids", "attention_mask", *TOKEN_TYPES)
"""Outputs of a processor that belong to the tokens."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as tensors on the CPU.

    Attributes:
        ids: Tokens, with the image token repeated for each embedding of an image; int64, shape (tokens,).
        images: Named tensors of all images, as `Family.encode` returns them; empty without images.
    """

    ids: torch.Tensor
    images: Mapping[str, torch.Tensor]

    @property
    def layout(self) -> tuple[Any, ...]:
        """Shapes of all images; prompts with the same layout can exchange their images."""
        return tuple(
            (name, *tensor.shape, () if tensor.is_floating_point() or tensor.dtype == torch.uint8 else tensor.tolist())
            for name, tensor in self.images.items()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle arrays, which is many times faster than pickling tensors."""
        return _from_arrays, (self.ids.numpy(), {name: tensor.numpy() for name, tensor in self.images.items()})


def _from_arrays(ids: Any, images: Mapping[str, Any]) -> EncodedPrompt:
    return EncodedPrompt(torch.from_numpy(ids), {name: torch.from_numpy(array) for name, array in images.items()})


class Prefill:
    """Results of a forward pass over distinct prompts, for responses that continue them.

    Attributes:
        hidden: Hidden states of the last layer, shape (prompts, longest prompt, width).
        ids: Prompt tokens, padded on the left, shape (prompts, longest prompt).
        rows: Index of each response's prompt, shape (responses,).
        cache: transformers' cache of the prompts. `select` or a decoder takes it over.
        mask: Attention mask of each response's prompt, int64, shape (responses, longest prompt).
        positions: Position id of each response's first token, shape (responses, 1).
    """

    def __init__(
        self, hidden: torch.Tensor, inputs: Mapping[str, torch.Tensor], cache: Any, index: Sequence[int]
    ) -> None:
        """`inputs` are those of the forward pass; `index` has the index of each response's prompt."""
        self.hidden, self.ids, self.cache = hidden, inputs["input_ids"], cache
        self.rows = torch.tensor(index, device=hidden.device)
        self.mask = inputs["attention_mask"][self.rows]
        last = inputs["position_ids"].amax(-1)  # positions of padding are 0; M-RoPE has three rows of positions
        self.positions = ((last if last.ndim == 1 else last.amax(0)) + 1)[self.rows, None]

    def select(self) -> Any:
        """Give each response its own row of the cache, and return the cache."""
        self.cache.reorder_cache(self.rows)
        return self.cache


class Decoder:
    """Extends sequences by one token at a time with transformers' forward pass, which works for all families."""

    def __init__(self, model: Any, prefill: Prefill) -> None:
        """Take over the cache of prefilled prompts. `model` is the language model."""
        self._model, self._cache = model, prefill.select()
        self._mask, self._positions = prefill.mask, prefill.positions

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append a token to each sequence and return its hidden states, shape (sequences, width)."""
        self._mask = F.pad(self._mask, (0, 1), value=1)
        out = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._positions = self._positions + 1
        hidden: torch.Tensor = out.last_hidden_state[:, 0]
        return hidden

    def drop(self, finished: Sequence[int]) -> list[int]:
        """Drop finished sequences and return the previous indices of those left, in their new order."""
        order = [row for row in range(len(self._mask)) if row not in {*finished}]
        rows = torch.tensor(order, device=self._mask.device)
        self._cache.reorder_cache(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]
        return order


class _LinearAttention(LinearAttentionLayer):
    """Assigns new states. transformers copies them into the old ones, which backward passes need unchanged."""

    def update_recurrent_state(self, recurrent_states: torch.Tensor, state_idx: int = 0, **options: Any) -> Any:
        self.recurrent_states[state_idx] = recurrent_states
        self.is_recurrent_states_initialized[state_idx] = True
        return recurrent_states


class Family:
    """The generic family. Its methods are what a subclass may override."""

    def __init__(self, folder: Path, config: Any) -> None:
        """Load the processor of a checkpoint.

        Args:
            folder: Folder with the files of the processor.
            config: The checkpoint's config.

        Raises:
            OSError, ValueError, ImportError, TypeError: It cannot be loaded.
        """
        self.config = config
        self.load(folder)
        self.image_token: int | None = getattr(config, "image_token_id", None) or getattr(
            config, "image_token_index", None
        )
        """Token that stands for each embedding of an image."""
        self.tokenizer.split_special_tokens = False  # keeps image tokens whole, regardless of the checkpoint

    # Encoding ---------------------------------------------------------------------------------------------------------

    def load(self, folder: Path) -> None:
        """Set `tokenizer`, and whatever `encode` needs."""
        self.processor = AutoProcessor.from_pretrained(folder)
        if not hasattr(self.processor, "tokenizer"):  # it is a tokenizer
            raise ValueError("the model does not accept images")
        self.tokenizer: Any = self.processor.tokenizer
        self.tokenizer.chat_template = self.tokenizer.chat_template or self.processor.chat_template

    def encode(self, chat: str, images: Sequence[Image.Image]) -> EncodedPrompt:
        """Encode a prompt in the chat format of the model, with its images in order."""
        batch = self.processor(
            text=[chat], images=[list(images)] if images else None, add_special_tokens=False, return_tensors="pt"
        )
        return EncodedPrompt(batch["input_ids"][0], {name: batch[name] for name in batch if name not in NOT_IMAGES})

    def collate_images(self, prompts: Sequence[EncodedPrompt], device: torch.device) -> dict[str, torch.Tensor]:
        """Batch the images of prompts as inputs of the model.

        The default concatenates tensors of the same name along their first dimension, after padding the others with
        zeros.
        """
        names = dict.fromkeys(name for prompt in prompts for name in prompt.images)
        batches: dict[str, torch.Tensor] = {}
        for name in names:
            tensors = [prompt.images[name].to(device) for prompt in prompts if name in prompt.images]
            shape = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors))]
            batches[name] = torch.cat([_padded(tensor, shape) for tensor in tensors])
        return batches

    # Model ------------------------------------------------------------------------------------------------------------

    def prepare(self, model: Any) -> None:
        """Change the loaded model, for instance to make it faster."""

    def text_model(self, model: Any) -> Any:
        """Return the language model, which maps tokens or embeddings to hidden states."""
        return model.get_decoder()

    def inputs(self, model: Any, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the inputs of a forward pass over prompts: `batch`, and what follows from its tokens.

        Args:
            model: The model.
            batch: input_ids, attention_mask and what `collate_images` returned.

        Returns:
            `batch` with position_ids, of shape (sequences, tokens) or, for multimodal rotary embeddings (M-RoPE),
            (3, sequences, tokens); 0 for padding on the left. Also token types if the model takes them.
        """
        images = (batch["input_ids"] == self.image_token).long()
        accepted = inspect.signature(type(model).forward).parameters
        inputs = {**batch, **{name: images for name in TOKEN_TYPES if name in accepted}}
        if "image_grid_thw" in batch and hasattr(model.model, "get_rope_index"):
            positions, _ = model.model.get_rope_index(
                input_ids=batch["input_ids"],
                mm_token_type_ids=images,
                image_grid_thw=batch["image_grid_thw"],
                attention_mask=batch["attention_mask"],
            )
        else:
            positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        return {**inputs, "position_ids": positions}

    def cache(self, model: Any) -> Any:
        """Return an empty cache for a forward pass that others continue, also with gradients."""
        cache = DynamicCache(config=model.config.get_text_config())
        cache.layers = [_LinearAttention() if type(layer) is LinearAttentionLayer else layer for layer in cache.layers]
        return cache

    def decoder(self, model: Any, prefill: Prefill, steps: int) -> Any:
        """Return a `Decoder`, or a faster class with the same methods, for at most so many new tokens."""
        return Decoder(self.text_model(model), prefill)

    def lora_targets(self, model: Any) -> str:
        """Return a regular expression of the layers that get LoRA adapters: all linear layers of the language model."""
        text = self.text_model(model)
        prefix = next(name for name, module in model.named_modules() if module is text)
        layers = {name.rpartition(".")[2] for name, module in text.named_modules() if isinstance(module, nn.Linear)}
        return rf"{re.escape(prefix)}\..*\.({'|'.join(sorted(layers))})"

    def suppressed(self) -> list[int]:
        """Return the tokens that are never sampled: those that stand for images, video or audio."""
        return image_token_ids(self.config, self.tokenizer)


def _padded(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Pad all dimensions but the first with zeros."""
    missing = [size - length for size, length in zip(shape, tensor.shape[1:])]
    return F.pad(tensor, [number for after in reversed(missing) for number in (0, after)])
