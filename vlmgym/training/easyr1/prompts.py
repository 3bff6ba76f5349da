"""Encode prompts for EasyR1's workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from verl.trainer.config import DataConfig
from verl.utils.dataset import RLHFDataset
from verl.utils.tokenizer import get_processor, get_tokenizer
from verl.workers.config import ModelConfig

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text, resolve_checkpoint
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages
from vlmgym.sandbox.drawing.encode import encode_png

HUB_SECONDS = 10.0
"""Timeout for requests to the Hub, in seconds."""
BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""Errors that transformers raises for missing or invalid model files."""
FEATURES = ("input_ids", "attention_mask", "position_ids", "raw_prompt_ids", "multi_modal_data")
"""Fields of an encoded prompt; see `PromptEncoder.encode`."""


def load_processors(model: ModelConfig, data: DataConfig) -> tuple[Any, Any]:
    """Load a model's tokenizer and processor as EasyR1 does; raise `UsageError` unless the model accepts images."""
    check_model(model.model_path)
    options = {"override_chat_template": data.override_chat_template, "trust_remote_code": model.trust_remote_code}
    try:
        tokenizer = get_tokenizer(model.model_path, use_fast=True, **options)
        processor = get_processor(model.model_path, use_fast=True, **options)
    except (ImportError, *BROKEN) as error:
        raise UsageError(f"cannot load the processor of the model {model.model_path}: {error_text(error)}") from None
    if processor is None or not hasattr(processor, "image_processor"):
        raise UsageError(f"the model {model.model_path} does not accept images: use a Qwen-VL")
    return tokenizer, processor


def check_model(model: str | None) -> None:
    """Raise `UsageError` unless a model exists.

    Called before transformers, which would retry the Hub for each file of a missing model.
    """
    if not model:
        raise UsageError("worker.actor.model.model_path must name a model: set MODEL")
    found = resolve_checkpoint(model, "easyr1")
    if Path(found).is_dir() or isinstance(try_to_load_from_cache(found, "config.json"), str):
        return
    try:
        HfApi().model_info(found, timeout=HUB_SECONDS)
    except OfflineModeIsEnabled:
        raise UsageError(f"the model {found} was not found locally, and HF_HUB_OFFLINE is set") from None
    except OSError as error:
        why = error_text(error) if isinstance(error, HfHubHTTPError) else "the Hub does not respond"
        raise UsageError(f"the model {found} was not found locally or on the Hub: {why}") from None


class _Rows:
    """A dataset whose rows are their own indices."""

    def __getitem__(self, row: dict[str, Any]) -> dict[str, Any]:
        return dict(row)


class PromptEncoder(RLHFDataset):
    """Encodes prompts and images with EasyR1's dataset class, without a data file."""

    def __init__(self, tokenizer: Any, processor: Any, data: DataConfig) -> None:
        """Set the attributes of `RLHFDataset` without loading a file."""
        self.tokenizer, self.processor, self.dataset = tokenizer, processor, _Rows()
        self.prompt_key, self.answer_key = data.prompt_key, data.answer_key
        self.image_key, self.video_key = data.image_key, data.video_key
        self.image_dir, self.video_fps, self.format_prompt = None, data.video_fps, None
        self.min_pixels, self.max_pixels = data.min_pixels, data.max_pixels
        self.max_prompt_length = data.max_prompt_length
        self.truncation = "error"  # the default would cut image tokens

    def _build_messages(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        """Put images before the text, as in evaluation, so that `<image>` in the text has no special meaning."""
        return chat_messages(example[self.prompt_key], example[self.image_key], lambda _: {"type": "image"})

    def encode(self, prompt: str | Sequence[Message], images: Sequence[ImageArray]) -> dict[str, Any]:
        """Encode a prompt; raise `UsageError` if it exceeds data.max_prompt_length.

        Returns:
            input_ids and attention_mask (int64, shape (max_prompt_length,), padded on the left), position_ids (int64,
            shape (4, max_prompt_length): text, time, height and width for mrope), raw_prompt_ids (a list of tokens with
            one per image, as vLLM expects), multi_modal_data (images as PNG files, which are small to transfer).
        """
        files = [{"bytes": encode_png(image)} for image in images]
        row = {self.prompt_key: prompt, self.image_key: files, self.answer_key: ""}
        try:
            encoded: dict[str, Any] = self[row]
        except RuntimeError as error:
            if "longer than" not in str(error):
                raise
            raise UsageError(
                f"a prompt has more tokens than data.max_prompt_length={self.max_prompt_length} ({error}): raise it, "
                "use smaller images (the game's size), or shorten play.history"
            ) from None
        return {name: encoded[name] for name in FEATURES}
