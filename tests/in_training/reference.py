"""Logits of a checkpoint from Hugging Face's own code, to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

from vlmgym.sandbox.core.game import ImageArray
from vlmgym.training.engine.encoding import Encoder
from vlmgym.training.engine.qwen_vl import QwenVL

IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


class Reference:
    """The checkpoint run by Hugging Face's own code, one text at a time without padding."""

    def __init__(self, checkpoint: Path) -> None:
        self.processor = AutoProcessor.from_pretrained(checkpoint)
        if isinstance(Encoder(checkpoint).family, QwenVL):
            self.processor.image_processor = AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
        self.model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
        self.suppressed_tokens = self.processor.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))

    def batch(self, text: str, images: Sequence[ImageArray]) -> dict[str, torch.Tensor]:
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
        message = {"role": "user", "content": content}
        chat = self.processor.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        opened = [Image.fromarray(image) for image in images]
        return dict(self.processor(text=[chat], images=opened or None, return_tensors="pt"))

    def logits(self, text: str, images: Sequence[ImageArray], response: Sequence[int]) -> torch.Tensor:
        """Return the logits of all response tokens and of the token after them, shape (tokens + 1, vocabulary)."""
        batch = self.batch(text, images)
        before = batch["input_ids"].shape[1]
        tail = torch.tensor([response], dtype=torch.int64)
        more = {"input_ids": tail, "attention_mask": torch.ones_like(tail), "mm_token_type_ids": torch.zeros_like(tail)}
        longer = {name: torch.cat([batch[name], added], dim=1) for name, added in more.items() if name in batch}
        with torch.no_grad():
            logits: torch.Tensor = self.model(**{**batch, **longer}).logits[0, before - 1 :]
        logits[:, self.suppressed_tokens] = -torch.inf
        return logits
