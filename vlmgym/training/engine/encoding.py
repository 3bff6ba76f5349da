"""Encode prompts and samples as tensors, for a model of any family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import ChatTemplate, SpecialTokens, error_text
from vlmgym.sandbox.core.game import NOT_DESCRIBED, Game, ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.training.algorithm import Floats
from vlmgym.training.engine.families import EncodedPrompt, Family
from vlmgym.training.engine.qwen_vl import QwenVL
from vlmgym.training.engine.weights import PROCESSOR_FILES


@dataclass(slots=True)
class TrainSample:
    """A prompt and a response to learn from. Arrays have one number per response token.

    Attributes:
        prompt: The prompt.
        response: Tokens, including the end token unless the response was cut off.
        truth: Tokens of the true `<perception>` of the state; None if the game describes none.
        advantages: Advantages. Supervised fine-tuning uses neither these nor the following attributes.
        old_logprobs: Log-probabilities before the step. None if a step is a single update, because they would equal
            the log-probabilities computed for the loss.
        ref_logprobs: Log-probabilities under the reference model; None without one.
        old_values: Values before the step; None without a critic.
        returns: Targets of the critic, NaN for tokens without a target; None without a critic.
        teacher_prompt: The prompt as the teacher reads it; None without a teacher.
    """

    prompt: EncodedPrompt
    response: list[int]
    truth: list[int] | None = None
    advantages: Floats | None = None
    old_logprobs: Floats | None = None
    ref_logprobs: Floats | None = None
    old_values: Floats | None = None
    returns: Floats | None = None
    teacher_prompt: EncodedPrompt | None = None


FAMILIES: Mapping[str, type[Family]] = dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"), QwenVL)
"""Family by model type in transformers; all other types have the generic `Family`."""


class Encoder:
    """Turns prompts and responses into tensors, and tokens into text, with a checkpoint's processor."""

    def __init__(self, checkpoint: Path | str, enable_thinking: bool | None = None) -> None:
        """Load tokenizer and image processor. `enable_thinking` is an argument of the chat template.

        Raises:
            UsageError: They cannot be loaded, or have no chat template or no token for images.
        """
        try:
            folder = download_processor(checkpoint)
            config = AutoConfig.from_pretrained(folder)
            self.family = FAMILIES.get(config.model_type, Family)(folder, config)
        except (OSError, ValueError, ImportError, TypeError) as error:  # TypeError: the vocabulary is missing
            raise UsageError(f"cannot load the processor of {checkpoint}: {error_text(error)}") from None
        self.tokenizer = self.family.tokenizer
        if not self.tokenizer.chat_template or self.family.image_token is None:
            raise UsageError(f"{checkpoint} does not accept images, or has no chat template")
        self.files = [folder / name for name in PROCESSOR_FILES if (folder / name).is_file()]
        """Files that are copied to checkpoints of the trained model."""
        self.end: int = self.tokenizer.eos_token_id
        self.pad: int = self.end if self.tokenizer.pad_token_id is None else self.tokenizer.pad_token_id
        self._special_tokens = SpecialTokens(self.tokenizer)
        options = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self._template = ChatTemplate(self.tokenizer, options)

    def encode(self, prompt: str | Sequence[Message], images: Sequence[ImageArray]) -> EncodedPrompt:
        """Encode a prompt in the chat format of the model; raise `EpisodeError` if it contains a special token."""
        self._special_tokens.check(prompt)
        messages = chat_messages(prompt, images, lambda _: {"type": "image"})
        return self.family.encode(self._template.render(messages), [Image.fromarray(image) for image in images])

    def tokens(self, response: str) -> list[int]:
        """Tokenize a response and append the end token."""
        return [*self.tokenizer.encode(response, add_special_tokens=False), self.end]

    def truth(self, game: Game[Any, Any], state: Any) -> list[int] | None:
        """Tokenize the start of a response that describes the image of a state; None without a ground truth."""
        description = game.describe(state)
        if description == NOT_DESCRIBED:
            return None
        text = f"<perception>{description}</perception>"
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return tokens

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
            input_ids and attention_mask, int64, shape (prompts, tokens of the longest sequence); and the inputs that
            `Family.collate_images` returns, in `dtype` if they are numbers with decimals.
        """
        rows, side = [prompt.ids for prompt in prompts], "left"
        if responses is not None:
            rows, side = [torch.cat([ids, torch.tensor(response)]) for ids, response in zip(rows, responses)], "right"
        ids = pad_sequence(rows, True, self.pad, side)
        mask = pad_sequence([torch.ones_like(row) for row in rows], True, int(side == "right"), side)
        images = self.family.collate_images(prompts, device)
        return {
            "input_ids": ids.to(device),
            "attention_mask": mask.to(device),
            **{name: part.to(dtype) if part.is_floating_point() else part for name, part in images.items()},
        }

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
