"""Prompts with images as tensors, for Qwen2-VL, Qwen2.5-VL and Qwen3-VL; torchvision is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text
from vlmgym.sandbox.core.game import ImageArray

IMAGE = "<|image_pad|>"
"""What the chat template writes for an image, and the model's token of one patch of it."""
KEPT_FILES = (
    "config.json",  # another version of transformers may write it otherwise than others read it
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
"""What beside the weights and their configuration makes a checkpoint one that can be served."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt, on the CPU.

    Attributes:
        ids: Tokens, an image's token repeated for each of its patches; int64, shape (tokens,).
        patches: All images' pixels before they are normalised, uint8, shape (patches, values of a patch). A step's
            prompts are all kept, and as the model takes them they need four times the memory.
        grids: Each image's patches in time, height and width, int64, shape (images, 3).
        end: EpisodeState of the token that follows: text counts each token, an image only its longer side.
    """

    ids: torch.Tensor
    patches: torch.Tensor
    grids: torch.Tensor
    end: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets arrays: tensors take many times as long to pickle."""
        return _of_arrays, (self.ids.numpy(), self.patches.numpy(), self.grids.numpy(), self.end)


def _of_arrays(ids: Any, patches: Any, grids: Any, end: int) -> Encoded:
    return Encoded(torch.from_numpy(ids), torch.from_numpy(patches), torch.from_numpy(grids), end)


class Encoder:
    """Turns prompts into tensors and tokens into text."""

    def __init__(self, checkpoint: Path | str) -> None:
        """Load tokenizer and image processor.

        Raises:
            UsageError: They do not load, or the tokenizer has no chat template or no image token.
        """
        try:
            folder = snapshot(checkpoint)
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
            self.images = AutoImageProcessor.from_pretrained(folder, use_fast=False)
        except (OSError, ValueError, ImportError, TypeError) as error:  # TypeError: there is no vocabulary
            raise UsageError(f"the processor of {checkpoint} does not load: {error_text(error)}") from None
        self.image_token = self.tokenizer.convert_tokens_to_ids(IMAGE)
        if not self.tokenizer.chat_template or self.image_token in (None, self.tokenizer.unk_token_id):
            raise UsageError(f"{checkpoint} is no Qwen-VL: its tokenizer has no chat template, or no {IMAGE}")
        self.tokenizer.split_special_tokens = False  # an image's token is one, whatever the checkpoint says
        self.files = [folder / name for name in KEPT_FILES if (folder / name).is_file()]
        """Files that a checkpoint of the trained model takes over as they are."""
        self.end: int = self.tokenizer.eos_token_id
        self.pad: int = self.tokenizer.pad_token_id
        self._levels = self._normalised_levels()

    def encode(self, text: str, images: Sequence[ImageArray]) -> Encoded:
        """A prompt in the model's chat form: the images, then the text."""
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
        message = {"role": "user", "content": content}
        chat: str = self.tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        seen = self._patches([Image.fromarray(image) for image in images], do_rescale=False, do_normalize=False)
        grids = seen["image_grid_thw"]
        begin, *rest = chat.split(IMAGE)
        if len(rest) != len(grids):
            raise UsageError(f"the prompt writes {IMAGE}, which stands for an image")
        merged = self.images.merge_size**2
        spelled = begin + "".join(IMAGE * (int(grid.prod()) // merged) + part for grid, part in zip(grids, rest))
        ids = self.tokenizer(spelled, add_special_tokens=False, return_tensors="pt")["input_ids"][0]
        sides = sum(int(grid[1:].max()) // self.images.merge_size for grid in grids)
        end = int((ids != self.image_token).sum()) + sides
        patches = torch.from_numpy(seen["pixel_values"].astype(np.uint8))
        return Encoded(ids, patches, torch.from_numpy(grids.astype(np.int64)), end)

    def pixel_values(self, patches: torch.Tensor) -> torch.Tensor:
        """What the model takes of `Encoded.patches`: float32, on the same device."""
        channels = len(self._levels)
        levels, apart = self._levels.to(patches.device), patches.view(len(patches), channels, -1).int()
        return torch.stack([levels[channel][apart[:, channel]] for channel in range(channels)], 1).view(patches.shape)

    def _patches(self, images: list[Image.Image], **options: bool) -> Any:
        return self.images(images=images, return_tensors="np", **options)

    def _normalised_levels(self) -> torch.Tensor:
        """What the image processor makes of each value of a pixel: float32, shape (channels, 256)."""
        side = self.images.patch_size * self.images.merge_size
        wide = -(-256 // side) * side
        ramp = np.broadcast_to(np.minimum(np.arange(wide), 255).astype(np.uint8)[None, :, None], (side, wide, 3))
        image = [Image.fromarray(np.ascontiguousarray(ramp))]
        before = self._patches(image, do_resize=False, do_rescale=False, do_normalize=False)["pixel_values"]
        after = self._patches(image, do_resize=False)["pixel_values"]
        levels = np.empty((3, 256), np.float32)
        raw, made = (seen.reshape(len(seen), len(levels), -1) for seen in (before.astype(np.uint8), after))
        for channel in range(len(levels)):
            levels[channel, raw[:, channel]] = made[:, channel]
        return torch.from_numpy(levels)

    def tokens(self, response: str) -> list[int]:
        """A response and its end as tokens."""
        return [*self.tokenizer.encode(response, add_special_tokens=False), self.end]

    def text(self, tokens: Sequence[int]) -> str:
        """A response as text, without the end."""
        decoded: str = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return decoded

    def collate(self, prompts: Sequence[Encoded], device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
        """Prompts as a batch for the model, with padding on the left.

        Returns:
            input_ids, attention_mask and mm_token_type_ids, int64 of shape (prompts, longest); pixel_values and
            image_grid_thw of all images.
        """
        longest = max(len(prompt.ids) for prompt in prompts)
        ids = torch.full((len(prompts), longest), self.pad)
        mask = torch.zeros((len(prompts), longest), dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt.ids) :] = prompt.ids
            mask[row, longest - len(prompt.ids) :] = 1
        return {
            "input_ids": ids.to(device),
            "attention_mask": mask.to(device),
            "mm_token_type_ids": (ids == self.image_token).long().to(device),
            "pixel_values": self.pixel_values(torch.cat([prompt.patches for prompt in prompts]).to(device)).to(dtype),
            "image_grid_thw": torch.cat([prompt.grids for prompt in prompts]).to(device),
        }

    def collate_responses(
        self, responses: Sequence[Sequence[int]], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Responses padded on the right.

        Returns:
            Their tokens, and 1 for each that is of a response; int64, shape (responses, longest response).
        """
        longest = max(map(len, responses))
        ids = torch.full((len(responses), longest), self.pad)
        mask = torch.zeros((len(responses), longest), dtype=torch.int64)
        for row, response in enumerate(responses):
            ids[row, : len(response)] = torch.tensor(response, dtype=torch.int64)
            mask[row, : len(response)] = 1
        return ids.to(device), mask.to(device)


def snapshot(checkpoint: Path | str) -> Path:
    """The folder of a checkpoint: itself, or that of the hub's cache with all that belongs to one but the weights.

    Raises:
        OSError: The hub has no such checkpoint, or cannot be reached and it is not in the cache.
        ValueError: Likewise.
    """
    if Path(checkpoint).is_dir():
        return Path(checkpoint)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(checkpoint), allow_patterns=list(KEPT_FILES)))
