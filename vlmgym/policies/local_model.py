"""A checkpoint in this process, by Hugging Face transformers. Needs the extra `transformers`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from vlmgym.errors import InfrastructureError, PolicyError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.checkpoint import error_text
from vlmgym.policies.token_sampling import SeededSampler, image_token_ids
from vlmgym.sandbox.core.game import ImageArray

SAMPLING = ("temperature", "top_p", "top_k", "min_p")
"""What a generation configuration says about drawing a token."""
NEVER = -1
"""An end of text that is never generated."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt for the model.

    Attributes:
        images: uint8 RGB of shape (height, width, 3) each.
        text: Follows the images.
        seed: Decides which tokens are drawn; None: whatever.
    """

    images: Sequence[ImageArray]
    text: str
    seed: int | None = None


class LocalModel:
    """Answers batches of prompts; one call at a time."""

    def __init__(self, checkpoint: str, device: str | None = None, dtype: str = "auto") -> None:
        """Load.

        Args:
            checkpoint: A folder, or a name on the hub.
            device: As torch names it; None: a GPU, if there is one.
            dtype: Type of weights and activations; `auto`: as they were saved.

        Raises:
            UsageError: It does not load, or is no vision-language model, or there is no such device.
        """
        try:
            self.processor = AutoProcessor.from_pretrained(checkpoint)
            model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=dtype)
        except (OSError, ValueError, ImportError) as error:
            raise UsageError(f"the model {checkpoint} does not load: {error_text(error)}") from None
        if not hasattr(self.processor, "image_processor") or not self.processor.chat_template:
            raise UsageError(f"the model {checkpoint} takes no images, or has no chat template")
        try:
            self.model = model.to(device or _accelerator()).eval()
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"the model {checkpoint} cannot go to the device {device}: {error_text(error)}") from None
        tokenizer = self.processor.tokenizer
        tokenizer.padding_side = "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        self.context: int = self.model.config.get_text_config().max_position_embeddings
        """Tokens of prompt and response together, at most."""
        ends = self.model.generation_config.eos_token_id
        self._ends = ends if isinstance(ends, list) else [ends]
        self._images = image_token_ids(self.model.config)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let a call that runs in another thread end at its next token."""
        self._stopped.set()

    def generate(
        self,
        questions: Sequence[GenerationRequest],
        max_tokens: int,
        *,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
    ) -> list[Reply | InfrastructureError]:
        """A reply to each question, or why there is none.

        Tokens that stand for images are never generated: they mean nothing in a response.

        Args:
            questions: The prompts, all of which are generated together.
            max_tokens: Longest response.
            temperature: 0 takes the likeliest token; None: as the model's generation configuration says, which is also
                what the other two are by default.
            top_p: Draw from the likeliest tokens that together have this probability.
            top_k: Draw from so many of the likeliest tokens.
            stop: End a response before any of these texts.
            ignore_eos: Go on after an end, for measurements.

        Raises:
            PolicyError: Memory is used up, or the model fails.
        """
        sampling = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        try:
            with torch.inference_mode():
                return self._generate_fitting(questions, max_tokens, self._warpers(sampling), list(stop), ignore_eos)
        except (RuntimeError, MemoryError) as error:
            out_of_memory = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError)
            if out_of_memory or "can't allocate memory" in str(error):  # which is what torch says on a CPU
                raise PolicyError(
                    f"the memory is too small for {len(questions)} prompts at once: lower --batch-size"
                ) from None
            raise PolicyError(f"transformers failed: {error_text(error)}") from None
        except (ValueError, IndexError, TypeError) as error:
            raise PolicyError(f"transformers failed: {error_text(error)}") from None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        found: torch.device = self.model.device
        return found

    def _generate_fitting(
        self,
        questions: Sequence[GenerationRequest],
        max_tokens: int,
        warpers: list[Any] | None,
        stop: list[str],
        ignore_eos: bool,
    ) -> list[Reply | InfrastructureError]:
        batch = self._tokenize(questions)
        lengths = batch["attention_mask"].sum(dim=1).tolist()
        replies: list[Reply | InfrastructureError] = [
            InfrastructureError(f"the prompt has {length:,} tokens, and the model takes {self.context:,}")
            for length in lengths
        ]
        fitting = [i for i, length in enumerate(lengths) if length < self.context]
        if not fitting:
            return replies
        if len(fitting) < len(questions):
            batch = self._tokenize([questions[i] for i in fitting])
        chance = [] if warpers is None else [*warpers, SeededSampler([questions[i].seed for i in fitting], self.device)]
        rows = self._generate_tokens(batch, chance, max_tokens, stop, ignore_eos)
        for i, row in zip(fitting, rows, strict=True):
            replies[i] = self._reply(row, lengths[i], stop, ignore_eos)
        return replies

    def _tokenize(self, questions: Sequence[GenerationRequest]) -> Any:
        texts = []
        for question in questions:
            content = [*({"type": "image"} for _ in question.images), {"type": "text", "text": question.text}]
            message = {"role": "user", "content": content}
            texts.append(self.processor.apply_chat_template([message], add_generation_prompt=True, tokenize=False))
        images = [[Image.fromarray(image) for image in question.images] for question in questions]
        begin = self.processor.tokenizer.bos_token
        batch = self.processor(
            text=texts,
            images=images if any(images) else None,
            padding=True,
            return_tensors="pt",
            add_special_tokens=begin is None or not texts[0].startswith(begin),
        )
        return batch.to(self.device, dtype=self.model.dtype)

    def _warpers(self, sampling: dict[str, float | None]) -> list[Any] | None:
        """What shapes the probabilities before a token is drawn; None: the likeliest token is taken."""
        defaults = self.model.generation_config.to_diff_dict()
        asked = {name: value for name, value in sampling.items() if value is not None}
        if asked.get("temperature") == 0 or not (asked or defaults.get("do_sample")):
            return None
        values = {name: defaults.get(name) for name in SAMPLING} | asked
        warpers: list[Any] = []
        if values["temperature"] is not None and values["temperature"] != 1:
            warpers.append(TemperatureLogitsWarper(float(values["temperature"])))
        if values["top_k"]:
            warpers.append(TopKLogitsWarper(int(values["top_k"])))
        if values["top_p"] is not None and values["top_p"] < 1:
            warpers.append(TopPLogitsWarper(values["top_p"]))
        if values["min_p"]:
            warpers.append(MinPLogitsWarper(values["min_p"]))
        return warpers

    def _generate_tokens(
        self, batch: Any, chance: list[Any], max_tokens: int, stop: list[str], ignore_eos: bool
    ) -> list[list[int]]:
        config = copy.deepcopy(self.model.generation_config)
        config.do_sample = False  # `chance` draws
        for name in SAMPLING:
            setattr(config, name, None)
        config.max_length = None
        config.max_new_tokens = min(max_tokens, self.context - batch["input_ids"].shape[1])
        config.pad_token_id = self.processor.tokenizer.pad_token_id
        config.suppress_tokens = self._images or None
        if ignore_eos:
            config.min_new_tokens = config.max_new_tokens
        if stop:
            config.stop_strings = stop
        made = self.model.generate(
            **batch,
            generation_config=config,
            logits_processor=LogitsProcessorList(chance),
            stopping_criteria=StoppingCriteriaList([_Stopped(self._stopped)]),
            tokenizer=self.processor.tokenizer,
        )
        rows: list[list[int]] = made[:, batch["input_ids"].shape[1] :].tolist()
        return rows

    def _reply(self, row: list[int], prompt_tokens: int, stop: Sequence[str], ignore_eos: bool) -> Reply:
        ended = False
        if not ignore_eos:
            end = next((place for place, token in enumerate(row) if token in self._ends), NEVER)
            ended = end != NEVER
            row = row[: end + 1] if ended else row
        text = self.processor.tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        places = [place for place in map(text.find, stop) if place >= 0]
        return Reply(
            text[: min(places)] if places else text,
            prompt_tokens=prompt_tokens,
            completion_tokens=len(row),
            finish_reason="stop" if ended or places else "length",
        )


class _Stopped(StoppingCriteria):  # type: ignore[misc]
    """Ends all rows once an event is set."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), self._event.is_set(), device=input_ids.device)


def _accelerator() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
