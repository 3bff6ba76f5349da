"""Encode prompts and samples as tensors for Qwen2-VL, Qwen2.5-VL and Qwen3-VL, without torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoImageProcessor, AutoTokenizer

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import SpecialTokens, error_text
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.training.advantages import Floats
from vlmgym.training.engine.weights import PROCESSOR_FILES

IMAGE = "<|image_pad|>"
"""Placeholder of an image in the chat template, and the token that stands for each of its merged patches."""
PATCHES_AT_ONCE = 128
"""Patches that a CPU normalises together, few enough to fit into its cache."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as tensors on the CPU.

    Attributes:
        ids: Tokens, with the image token repeated for each merged patch; int64, shape (tokens,).
        patches: Pixels of all images before normalisation, uint8, shape (patches, channels, pixels per patch). They
            take an eighth of the memory of the model's float32 input, which also repeats each patch for a second frame;
            this matters because all prompts of a step are kept.
        grids: Number of patches of each image along time, height and width; int64, shape (images, 3).
        next_position: Position id of the token after the prompt. A text token advances position ids by one, an image by
            the number of merged patches along its longer side.
    """

    ids: torch.Tensor
    patches: torch.Tensor
    grids: torch.Tensor
    next_position: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle arrays, which is many times faster than pickling tensors."""
        return _from_arrays, (self.ids.numpy(), self.patches.numpy(), self.grids.numpy(), self.next_position)


def _from_arrays(ids: Any, patches: Any, grids: Any, next_position: int) -> EncodedPrompt:
    return EncodedPrompt(torch.from_numpy(ids), torch.from_numpy(patches), torch.from_numpy(grids), next_position)


@dataclass(slots=True)
class TrainSample:
    """A prompt and a response to learn from. Arrays have one number per response token.

    Attributes:
        prompt: The prompt.
        response: Tokens, including the end token unless the response was cut off.
        advantages: Advantages. Supervised fine-tuning uses neither these nor the following attributes.
        old_logprobs: Log-probabilities before the step. None if a step is a single update, because they would equal
            the log-probabilities computed for the loss.
        ref_logprobs: Log-probabilities under the reference model; None without one.
        old_values: Values before the step; None without a critic.
        returns: Targets of the critic, NaN for tokens without a target; None without a critic.
    """

    prompt: EncodedPrompt
    response: list[int]
    advantages: Floats | None = None
    old_logprobs: Floats | None = None
    ref_logprobs: Floats | None = None
    old_values: Floats | None = None
    returns: Floats | None = None


class Encoder:
    """Tokenizer and image processor of a checkpoint."""

    def __init__(self, checkpoint: Path | str) -> None:
        """Load tokenizer and image processor.

        Raises:
            UsageError: They cannot be loaded, or the tokenizer lacks a chat template or the image token.
        """
        try:
            folder = download_processor(checkpoint)
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
            self.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        except (OSError, ValueError, ImportError, TypeError) as error:  # TypeError: the vocabulary is missing
            raise UsageError(f"cannot load the processor of {checkpoint}: {error_text(error)}") from None
        self.image_token = self.tokenizer.convert_tokens_to_ids(IMAGE)
        if not self.tokenizer.chat_template or self.image_token in (None, self.tokenizer.unk_token_id):
            raise UsageError(f"{checkpoint} is not a Qwen-VL: its tokenizer lacks a chat template or {IMAGE}")
        self.tokenizer.split_special_tokens = False  # keeps image tokens whole, regardless of the checkpoint
        self.files = [folder / name for name in PROCESSOR_FILES if (folder / name).is_file()]
        """Files that are copied to checkpoints of the trained model."""
        self.end: int = self.tokenizer.eos_token_id
        self.pad: int = self.tokenizer.pad_token_id
        self._special_tokens = SpecialTokens(self.tokenizer)
        self._levels = self._normalised_levels()
        self._token_ids = lru_cache(maxsize=256)(self._tokenize)  # many prompts differ only in their images

    def encode(self, prompt: str | Sequence[Message], images: Sequence[ImageArray]) -> EncodedPrompt:
        """Encode a prompt in the chat format of the model; raise `EpisodeError` if it contains a special token."""
        self._special_tokens.check(prompt)
        messages = chat_messages(prompt, images, lambda _: {"type": "image"})
        chat: str = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        grids, patches = np.empty((0, 3), np.int64), torch.empty(0, dtype=torch.uint8)
        if images:
            features = self._patches([Image.fromarray(image) for image in images], do_rescale=False, do_normalize=False)
            grids, frames = features["image_grid_thw"], self._split_frames(features["pixel_values"])
            patches = torch.from_numpy(frames[:, :, 0].astype(np.uint8))
        start, *rest = chat.split(IMAGE)
        merge_size = self.image_processor.merge_size
        expanded = start + "".join(
            IMAGE * (int(grid.prod()) // merge_size**2) + part for grid, part in zip(grids, rest)
        )
        ids = self._token_ids(expanded)
        sides = sum(int(grid[1:].max()) // merge_size for grid in grids)
        next_position = int((ids != self.image_token).sum()) + sides
        return EncodedPrompt(ids, patches, torch.from_numpy(grids.astype(np.int64)), next_position)

    def _tokenize(self, chat: str) -> torch.Tensor:
        ids: torch.Tensor = self.tokenizer(chat, add_special_tokens=False, return_tensors="pt")["input_ids"][0]
        return ids

    def pixel_values(self, patches: torch.Tensor) -> torch.Tensor:
        """Normalise `EncodedPrompt.patches` to float32, shape (patches, values per patch), on the same device."""
        count = self._levels.shape[1]
        levels = self._levels.flatten().to(patches.device)
        offsets = count * torch.arange(len(self._levels), dtype=torch.int32, device=patches.device)[:, None]
        shape = (len(patches), len(self._levels), self.image_processor.temporal_patch_size, patches.shape[-1])
        values = torch.empty(shape, device=patches.device)
        size = PATCHES_AT_ONCE if patches.device.type == "cpu" else len(patches)
        for part, target in zip(patches.split(size), values.split(size)):
            target.copy_(levels.index_select(0, (part + offsets).flatten()).view(part.shape).unsqueeze(2))
        return values.flatten(1)

    def _split_frames(self, patches: Any) -> Any:
        """Reshape patches to (patches, channels, frames, pixels); all frames of an image are equal."""
        return patches.reshape(len(patches), len(self._levels), self.image_processor.temporal_patch_size, -1)

    def _patches(self, images: list[Image.Image], **options: bool) -> Any:
        return self.image_processor(images=images, return_tensors="np", **options)

    def _normalised_levels(self) -> torch.Tensor:
        """Tabulate the normalised value of each pixel value: float32, shape (channels, 256)."""
        side = self.image_processor.patch_size * self.image_processor.merge_size
        width = -(-256 // side) * side
        ramp = np.broadcast_to(np.minimum(np.arange(width), 255).astype(np.uint8)[None, :, None], (side, width, 3))
        image = [Image.fromarray(np.ascontiguousarray(ramp))]
        before = self._patches(image, do_resize=False, do_rescale=False, do_normalize=False)["pixel_values"]
        after = self._patches(image, do_resize=False)["pixel_values"]
        levels = np.empty((3, 256), np.float32)
        raw, normalised = (pixels.reshape(len(pixels), len(levels), -1) for pixels in (before.astype(np.uint8), after))
        for channel in range(len(levels)):
            levels[channel, raw[:, channel]] = normalised[:, channel]
        return torch.from_numpy(levels)

    def tokens(self, response: str) -> list[int]:
        """Tokenize a response and append the end token."""
        return [*self.tokenizer.encode(response, add_special_tokens=False), self.end]

    def sample(self, prompt: str | Sequence[Message], images: Sequence[ImageArray], response: str) -> TrainSample:
        """Encode a prompt and a response to it."""
        return TrainSample(self.encode(prompt, images), self.tokens(response))

    def text(self, tokens: Sequence[int]) -> str:
        """Decode a response without special tokens."""
        decoded: str = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return decoded

    def collate(
        self,
        prompts: Sequence[EncodedPrompt],
        responses: Sequence[Sequence[int]] | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> dict[str, Any]:
        """Batch prompts as model inputs, padded on the left; or prompts with responses, padded on the right.

        Padding on the right is not masked, because causal attention hides it from all other tokens; without masked
        tokens, attention is faster.

        Returns:
            input_ids, attention_mask and mm_token_type_ids, int64, shape (prompts, tokens of the longest sequence);
            and, if there are images, pixel_values and image_grid_thw of all images.
        """
        rows, side = [prompt.ids for prompt in prompts], "left"
        if responses is not None:
            rows, side = [torch.cat([ids, torch.tensor(more)]) for ids, more in zip(rows, responses)], "right"
        ids = pad_sequence(rows, True, self.pad, side)
        mask = pad_sequence([torch.ones_like(row) for row in rows], True, int(side == "right"), side)
        inputs = {
            "input_ids": ids.to(device),
            "attention_mask": mask.to(device),
            "mm_token_type_ids": (ids == self.image_token).long().to(device),
        }
        if any(len(prompt.grids) for prompt in prompts):
            patches = torch.cat([prompt.patches for prompt in prompts]).to(device)
            inputs["pixel_values"] = self.pixel_values(patches).to(dtype)
            inputs["image_grid_thw"] = torch.cat([prompt.grids for prompt in prompts]).to(device)
        return inputs

    def collate_responses(
        self, responses: Sequence[Sequence[int]], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Batch responses, padded on the right.

        Returns:
            Tokens, and a mask with 1 for response tokens and 0 for padding; both int64, shape (responses, tokens of the
            longest response).
        """
        rows = [torch.tensor(response) for response in responses]
        ids = pad_sequence(rows, True, self.pad)
        mask = pad_sequence([torch.ones_like(row) for row in rows], True, 0)
        return ids.to(device), mask.to(device)


def download_processor(checkpoint: Path | str) -> Path:
    """Return a folder with the `PROCESSOR_FILES` of a checkpoint, downloading them if needed.

    Raises:
        OSError: The download failed.
        ValueError: The name is invalid.
    """
    if Path(checkpoint).is_dir():
        return Path(checkpoint)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(checkpoint), allow_patterns=list(PROCESSOR_FILES)))
