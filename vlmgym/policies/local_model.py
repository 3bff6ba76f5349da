"""Batched generation with Hugging Face transformers. Requires the extra `transformers`."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    PretrainedConfig,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from vlmgym.errors import InfrastructureError, PolicyError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.checkpoint import ChatTemplate, SpecialTokens, error_text
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import Message, chat_messages

SAMPLING = ("temperature", "top_p", "top_k", "min_p")
"""Sampling fields of a generation config."""
IMAGE_TOKEN = re.compile("((image|video|vision|audio)_(start_|end_)?|(boi|eoi|boa|eoa)_)token_(id|index)")
"""Fields of a model config that hold the ids of tokens for images, video and audio."""
NAMED_TOKEN = re.compile(".*(image|video|vision|audio|boi|eoi|boa|eoa).*_token")
"""Names that a tokenizer gives to such tokens."""
DRAWN_AT_ONCE = 64
"""Random numbers that a row draws in one call, which takes hardly longer than drawing one."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt to respond to.

    Attributes:
        images: Images of all messages, in order.
        prompt: Messages or a string, as accepted by `chat_messages`.
        seed: Sampling seed; None for a random one.
    """

    images: Sequence[ImageArray]
    prompt: str | Sequence[Message]
    seed: int | None = None


class LocalModel:
    """A vision-language model that generates batches of responses. Not thread-safe."""

    def __init__(
        self,
        checkpoint: str,
        device: str | None = None,
        dtype: str = "auto",
        template_options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Load a checkpoint onto a device, by default a GPU if there is one.

        `dtype` is the data type of weights and activations; `auto` uses the checkpoint's. `template_options` are
        arguments of the chat template.
        """
        try:
            self.processor = AutoProcessor.from_pretrained(checkpoint)
            model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=dtype)
        except (OSError, ValueError, ImportError) as error:
            raise UsageError(f"cannot load the model {checkpoint}: {error_text(error)}") from None
        if not hasattr(self.processor, "image_processor") or not self.processor.chat_template:
            raise UsageError(f"the model {checkpoint} does not accept images, or has no chat template")
        try:
            self.model = model.to(device or _accelerator()).eval()
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"cannot move the model {checkpoint} to device {device}: {error_text(error)}") from None
        tokenizer = self.processor.tokenizer
        tokenizer.padding_side = "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        self.context: int = self.model.config.get_text_config().max_position_embeddings
        """Context length: maximum tokens of prompt and response together."""
        eos = self.model.generation_config.eos_token_id
        self._eos = eos if isinstance(eos, list) else [eos]
        self._image_tokens = image_token_ids(self.model.config, tokenizer)
        self._special_tokens = SpecialTokens(tokenizer)
        self._template = ChatTemplate(self.processor, template_options)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make a `generate` call in another thread return after the current token."""
        self._stopped.set()

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        max_tokens: int,
        *,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
    ) -> list[Reply | InfrastructureError]:
        """Return a reply to each prompt, or an error.

        A prompt has an error if it contains a special token of the model, or leaves no room in the context length.

        Image placeholder tokens are never generated. Sampling options default to the model's generation config.

        Raises:
            PolicyError: Out of memory, or the model failed.
        """
        sampling = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        try:
            with torch.inference_mode():
                return self._generate(requests, max_tokens, sampling)
        except (RuntimeError, MemoryError, ValueError, IndexError, TypeError) as error:
            out_of_memory = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError)
            if out_of_memory or "can't allocate memory" in str(error):  # torch's message on a CPU
                raise PolicyError(f"out of memory with {len(requests)} prompts per batch: lower --batch-size") from None
            raise PolicyError(f"transformers failed: {error_text(error)}") from None

    def _generate(
        self, requests: Sequence[GenerationRequest], max_tokens: int, sampling: dict[str, float | None]
    ) -> list[Reply | InfrastructureError]:
        errors: dict[int, InfrastructureError] = {}
        for i, request in enumerate(requests):
            try:
                self._special_tokens.check(request.prompt)
            except InfrastructureError as error:
                errors[i] = error
        if not errors:
            batch = self._tokenize(requests)
            lengths: list[int] = batch["attention_mask"].sum(dim=1).tolist()
            for i, length in enumerate(lengths):
                if length >= self.context:
                    errors[i] = InfrastructureError(
                        f"the prompt has {length:,} tokens, which leaves no room for a response in the context length "
                        f"{self.context:,}"
                    )
        if errors:
            valid_requests = [request for i, request in enumerate(requests) if i not in errors]
            replies = iter(self._generate(valid_requests, max_tokens, sampling) if valid_requests else [])
            return [errors[i] if i in errors else next(replies) for i in range(len(requests))]
        sequences = self.model.generate(
            **batch,
            generation_config=self._config(min(max_tokens, self.context - min(lengths))),
            logits_processor=LogitsProcessorList(self._sampler(sampling, [request.seed for request in requests])),
            stopping_criteria=StoppingCriteriaList([_Stopped(self._stopped)]),
            tokenizer=self.processor.tokenizer,
        )
        rows = sequences[:, batch["input_ids"].shape[1] :].tolist()
        return [self._reply(row[: self.context - length], length) for row, length in zip(rows, lengths, strict=True)]

    def _tokenize(self, requests: Sequence[GenerationRequest]) -> Any:
        texts = []
        for request in requests:
            messages = chat_messages(request.prompt, request.images, lambda _: {"type": "image"})
            texts.append(self._template.render(messages))
        images = [[Image.fromarray(image) for image in request.images] for request in requests]
        bos = self.processor.tokenizer.bos_token
        batch = self.processor(
            text=texts,
            images=images if any(images) else None,
            padding=True,
            return_tensors="pt",
            add_special_tokens=bos is None or not texts[0].startswith(bos),
        )
        return batch.to(self.model.device, dtype=self.model.dtype)

    def _sampler(self, sampling: dict[str, float | None], seeds: Sequence[int | None]) -> list[Any]:
        """Return the logits processors that sample; none for greedy decoding."""
        defaults = self.model.generation_config.to_diff_dict()
        overrides = {name: value for name, value in sampling.items() if value is not None}
        if overrides.get("temperature") == 0 or not (overrides or defaults.get("do_sample")):
            return []
        values = {name: defaults.get(name) for name in SAMPLING} | overrides
        warpers: list[Any] = []
        if values["temperature"] is not None and values["temperature"] != 1:
            warpers.append(TemperatureLogitsWarper(float(values["temperature"])))
        if values["top_k"]:
            warpers.append(TopKLogitsWarper(int(values["top_k"])))
        if values["top_p"] is not None and values["top_p"] < 1:
            warpers.append(TopPLogitsWarper(values["top_p"]))
        if values["min_p"]:
            warpers.append(MinPLogitsWarper(values["min_p"]))
        return [*warpers, SeededSampler(seeds)]

    def _config(self, max_tokens: int) -> Any:
        config = copy.deepcopy(self.model.generation_config)
        config.do_sample = False  # `SeededSampler` samples
        for name in SAMPLING:
            setattr(config, name, None)
        config.max_length = None
        config.max_new_tokens = max_tokens
        config.pad_token_id = self.processor.tokenizer.pad_token_id
        config.suppress_tokens = self._image_tokens or None
        return config

    def _reply(self, row: list[int], prompt_tokens: int) -> Reply:
        end = next((i for i, token in enumerate(row) if token in self._eos), None)
        if end is not None:
            row = row[: end + 1]
        text = self.processor.tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(
            text,
            prompt_tokens=prompt_tokens,
            completion_tokens=len(row),
            finish_reason="stop" if end is not None else "length",
        )


class _Stopped(StoppingCriteria):  # type: ignore[misc]
    """Stops all rows once an event is set."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), self._event.is_set(), device=input_ids.device)


def _accelerator() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def image_token_ids(config: PretrainedConfig, tokenizer: Any) -> list[int]:
    """Return the ids of placeholder tokens for images, video and audio, which are meaningless in a response."""
    ids = {value for name, value in config.to_dict().items() if IMAGE_TOKEN.fullmatch(name)}
    named_tokens = [token for name, token in tokenizer.special_tokens_map.items() if NAMED_TOKEN.fullmatch(name)]
    return sorted({*ids, *tokenizer.convert_tokens_to_ids(named_tokens)} - {None})


class SeededSampler(LogitsProcessor):  # type: ignore[misc]
    """Samples tokens by inverting the cumulative distribution at one random number per row.

    Each row has its own generator, so the other prompts in the batch affect its samples only through rounding.
    """

    def __init__(self, seeds: Sequence[int | None], temperature: float = 1.0) -> None:
        """Create a generator for each row from its seed; None for a random seed. `temperature` must be above 0."""
        self._temperature = temperature
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        self._numbers = np.empty((len(seeds), 0), np.float32)
        """The next random numbers of each row."""

    def select(self, rows: Sequence[int]) -> SeededSampler:
        """Return a sampler for some of the rows. It shares their generators, so do not use this sampler afterwards."""
        sampler = SeededSampler((), self._temperature)
        sampler._rngs = [self._rngs[row] for row in rows]
        sampler._numbers = self._numbers[rows]
        return sampler

    def draw(self, scores: torch.Tensor) -> torch.Tensor:
        """Draw a token id for each row of the logits `scores`, of shape (batch, vocab); 0 if the row has a NaN."""
        if not self._numbers.shape[1]:
            numbers = [rng.random(DRAWN_AT_ONCE, dtype=np.float32) for rng in self._rngs]
            self._numbers = 1 - np.stack(numbers)  # above 0 and at most 1
        uniform = torch.from_numpy(self._numbers[:, :1]).to(scores)
        self._numbers = self._numbers[:, 1:]
        probabilities = (scores / self._temperature).softmax(-1)
        cumulative = probabilities.cumsum(-1)
        if scores.device.type == "cpu":
            thresholds = uniform * cumulative[:, -1:]
            return torch.searchsorted(cumulative, thresholds).masked_fill_(thresholds.isnan(), 0).squeeze(-1)
        # On a GPU, rounding can make cumulative sums decrease, so that a token of probability 0 could be the first to
        # reach the threshold.
        cumulative = cumulative.masked_fill(probabilities == 0, 0.0)
        return (cumulative >= uniform * cumulative.amax(-1, keepdim=True)).byte().argmax(-1)

    def __call__(self, input_ids: torch.Tensor | None, scores: torch.Tensor) -> torch.Tensor:
        """Return 0 for the drawn tokens and -inf for all others, so that greedy decoding selects the drawn tokens."""
        return torch.full_like(scores, -torch.inf).scatter(-1, self.draw(scores).unsqueeze(-1), 0.0)
