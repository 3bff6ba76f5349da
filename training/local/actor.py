"""The model that is trained: writes responses, and says how likely they were and what it expected to earn."""

from __future__ import annotations

import inspect
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from transformers import AutoModelForImageTextToText

from training.core.saving import saving
from training.local.encoding import Encoded, Encoder
from training.local.lora import load_adapters, save_adapters, save_merged, with_lora
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.checkpoint import error_text
from vlmgym.policies.token_sampling import SeededSampler, image_token_ids

MODEL, ADAPTER = "model", "adapter"
"""Folders of a whole checkpoint, and of adapters."""
DType = Literal["float32", "bfloat16"]
T = TypeVar("T")
_LOADING = threading.Lock()
"""transformers loads one model at a time: of two in two threads it makes weights that it takes for missing."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model is trained, and how it is held in memory."""

    model: str | None = None
    """Folder or hub name of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL. Default: a tiny, random Qwen3-VL is made."""
    device: str | None = None
    """Where it runs, for instance cpu or cuda:1. Default: a GPU, if there is one."""
    dtype: DType = "float32"
    """Type of weights and activations."""
    lora: int = 0
    """Rank of LoRA adapters on all linear layers of the language model; 0: all weights are trained."""
    checkpointing: bool = False
    """Compute activations again in the backward pass: slower, with less memory."""
    threads: int = 1
    """Threads of torch on a CPU. With a tiny model one is fastest."""

    def __post_init__(self) -> None:
        if self.lora < 0 or self.threads < 1:
            raise UsageError("lora is at least 0 and threads at least 1")
        if self.dtype == "bfloat16" and not self.lora:
            raise UsageError("small changes are lost in weights of bfloat16: use --lora 64 with it, or --dtype float32")


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and a response to it.

    Attributes:
        prompt: The prompt.
        response: Tokens of the response, with its end if it came to one.
    """

    prompt: Encoded
    response: list[int]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the model says of responses; all of shape (responses, longest response) but `values`.

    Attributes:
        logprobs: Log-probability of each token among those that may be sampled, at the sampling temperature.
        entropy: Of each token's distribution, in nats.
        mask: Which tokens are of a response.
        values: What the value head expects before each token; None without one.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor
    mask: torch.Tensor
    values: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Read:
    """Prompts that went through the model once each, for responses of which several may be to the same prompt.

    Attributes:
        hidden: Last hidden states of the prompts, shape (prompts, longest, width).
        ids: Their tokens, padded on the left, shape (prompts, longest).
        rows: The prompt of each response, shape (responses,).
        cache: Keys and values of each response's prompt.
        mask: Which tokens are of each response's prompt, shape (responses, longest).
        positions: Of each response's first token, shape (responses, 1).
    """

    hidden: torch.Tensor
    ids: torch.Tensor
    rows: torch.Tensor
    cache: Any
    mask: torch.Tensor
    positions: torch.Tensor


class Actor(nn.Module):
    """A Qwen-VL, and for PPO a value head on its last hidden states: a token's, and the mean of the images'."""

    def __init__(self, checkpoint: Path | str, config: ModelConfig, *, critic: bool = False) -> None:
        """Load.

        Raises:
            UsageError: It does not load, is no Qwen-VL, or there is no such device.
        """
        super().__init__()
        self.encoder = Encoder(checkpoint)
        try:
            with _LOADING:
                model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=getattr(torch, config.dtype))
        except (OSError, ValueError, ImportError) as error:
            raise UsageError(f"the model {checkpoint} does not load: {error_text(error)}") from None
        self._computes_again = config.checkpointing
        """Then layers keep no keys and values while they are trained, so that each response needs its own prompt."""
        if config.checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.never = sorted(image_token_ids(model.config))
        """Tokens that stand for images, which mean nothing in a response and are never sampled."""
        ends = model.generation_config.eos_token_id
        self.ends = {self.encoder.end, *(ends if isinstance(ends, list) else [ends])}
        """Tokens that end a response, which are those that end it where the checkpoint is served."""
        self.context: int = model.config.get_text_config().max_position_embeddings
        self.adapters = with_lora(model, config.lora) if config.lora else None
        self.model = model
        self.critic = nn.Linear(2 * model.config.get_text_config().hidden_size, 1) if critic else None
        if self.critic is not None:
            nn.init.zeros_(self.critic.weight)
            nn.init.zeros_(self.critic.bias)
        self._scale = model.config.get_text_config().hidden_size ** -0.5
        """Keeps a value as large at any width of the model."""
        self._takes_types = "mm_token_type_ids" in inspect.signature(type(model).forward).parameters
        model.train()  # without which activations are never computed again
        try:
            self.to(config.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except (RuntimeError, AssertionError) as error:
            if "out of memory" in str(error):  # it is said elsewhere what to lower
                raise
            raise UsageError(
                f"the model cannot go to the device {config.device or 'cuda'}: {error_text(error)}"
            ) from None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self.model.device
        return device

    def reply(self, prompt: Encoded, response: Sequence[int]) -> Reply:
        """A response as one that is played."""
        return Reply(
            self.encoder.text(response),
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(response),
            finish_reason="stop" if response[-1] in self.ends else "length",
        )

    @torch.no_grad()
    def respond(
        self,
        prompts: Sequence[Encoded],
        asked: Sequence[int],
        seeds: Sequence[int],
        max_tokens: int,
        temperature: float,
    ) -> list[list[int]]:
        """Responses as tokens, each with its end if it came to one.

        A prompt goes through the model once, however many responses are asked to it.

        Args:
            prompts: The prompts.
            asked: The prompt of each response, by its place; all are written together.
            seeds: Which tokens are drawn in each response: whatever shares the batch.
            max_tokens: Longest response.
            temperature: 0 takes the likeliest token.

        Raises:
            UsageError: A prompt is longer than what the model takes.
        """
        length = max(len(prompt.ids) for prompt in prompts)
        if length >= self.context:
            raise UsageError(f"a prompt has {length:,} tokens, and the model takes {self.context:,}")
        self.model.eval()
        read = self._read(prompts, asked)
        cache, mask, positions = read.cache, read.mask, read.positions
        scores = self.model.lm_head(read.hidden[:, -1])[read.rows]
        chance = SeededSampler(seeds, self.device, temperature) if temperature else None
        responses: list[list[int]] = [[] for _ in asked]
        writing_ = list(range(len(asked)))
        for _ in range(min(max_tokens, self.context - length)):
            scores = self._allowed(scores.float())
            tokens = (scores if chance is None else chance(None, scores)).argmax(-1)
            for number, token in zip(writing_, tokens.tolist()):
                responses[number].append(token)
            going = [place for place, number in enumerate(writing_) if responses[number][-1] not in self.ends]
            if not going:
                break
            if len(going) < len(writing_):  # the others have ended
                kept = torch.tensor(going, device=self.device)
                cache.batch_select_indices(kept)
                mask, positions, tokens = mask[kept], positions[kept], tokens[kept]
                writing_ = [writing_[place] for place in going]
                chance = None if chance is None else chance.select(going)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            out = self.model(
                input_ids=tokens[:, None],
                attention_mask=mask,
                position_ids=positions.expand(3, *positions.shape),
                past_key_values=cache,
                use_cache=True,
            )
            scores, positions = out.logits[:, -1], positions + 1
        self.model.train()
        return responses

    def measure(self, samples: Sequence[Sample], temperature: float = 1.0, *, learn_entropy: bool = False) -> Measured:
        """How likely each token of the responses was, with a gradient.

        A prompt of several of these responses, the same object in each sample, goes through the model once, unless
        activations are computed again in the backward pass.

        Args:
            samples: Prompts and responses.
            temperature: At which they were sampled, more than 0.
            learn_entropy: Whether the entropy has a gradient, too, which needs more memory.
        """
        tokens, mask = self.encoder.collate_responses([sample.response for sample in samples], self.device)
        prompts, asked = each_once([sample.prompt for sample in samples])
        if len(prompts) < len(samples) and not self._computes_again:
            before, seen = self._after_prompts(self._read(prompts, asked), tokens, mask)
        else:
            before, seen = self._with_prompts([sample.prompt for sample in samples], tokens, mask)
        logits = self._allowed(self.model.lm_head(before).float() / temperature)
        mask = mask.bool()
        logprobs = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
        with torch.set_grad_enabled(learn_entropy and torch.is_grad_enabled()):
            entropy = entropy_of(logits)
        values = None if self.critic is None else self._expected(before, seen)
        return Measured(logprobs.masked_fill(~mask, 0.0), entropy.masked_fill(~mask, 0.0), mask, values)

    def _read(self, prompts: Sequence[Encoded], asked: Sequence[int]) -> _Read:
        """Put prompts through the model, each of which is asked as often as its place is in `asked`."""
        batch = self._inputs(prompts)
        out = self.model.model(**batch, use_cache=True)
        rows = torch.tensor(asked, device=self.device)
        out.past_key_values.batch_select_indices(rows)
        positions = torch.tensor([[prompts[place].end] for place in asked], device=self.device)
        mask = batch["attention_mask"][rows]
        return _Read(out.last_hidden_state, batch["input_ids"], rows, out.past_key_values, mask, positions)

    def _after_prompts(
        self, read: _Read, tokens: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What each token of responses is predicted from, shape (responses, longest, width), after prompts that were
        read, and the mean of the hidden states of the prompt's images, shape (responses, 1, width)."""
        before, steps = read.hidden[read.rows, -1:], tokens.shape[1] - 1
        if steps:
            positions = read.positions + torch.arange(steps, device=self.device)
            hidden = self.model.model(
                input_ids=tokens[:, :-1],
                attention_mask=torch.cat([read.mask, mask[:, :-1]], dim=1),
                position_ids=positions.expand(3, *positions.shape),
                past_key_values=read.cache,
                use_cache=True,
            ).last_hidden_state
            before = torch.cat([before, hidden], dim=1)
        return before, self._images(read.hidden, read.ids)[read.rows]

    def _with_prompts(
        self, prompts: Sequence[Encoded], tokens: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Likewise, of responses each of which goes through the model together with its prompt."""
        batch = self._inputs(prompts)
        ids = batch["input_ids"]
        more = {"input_ids": tokens, "attention_mask": mask, "mm_token_type_ids": torch.zeros_like(tokens)}
        joined = {name: torch.cat([batch[name], tail], dim=1) for name, tail in more.items() if name in batch}
        hidden = self.model.model(**{**batch, **joined}, use_cache=False).last_hidden_state
        prompt = ids.shape[1]
        return hidden[:, prompt - 1 : -1], self._images(hidden[:, :prompt], ids)

    def _images(self, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Mean of the hidden states of each prompt's images, shape (prompts, 1, width)."""
        images = (ids == self.encoder.image_token).unsqueeze(-1)
        return (hidden * images).sum(dim=1, keepdim=True) / images.sum(dim=1, keepdim=True).clamp(min=1)

    def _expected(self, before: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """What the critic expects before each token of the responses: it reads what the token is predicted from, and
        the mean over the prompt's images, of which the former says little until the response tells what is seen."""
        assert self.critic is not None
        read = torch.cat([before, seen.expand_as(before)], dim=-1).to(self.critic.weight.dtype)
        values: torch.Tensor = self.critic(self._scale * read).squeeze(-1).float()
        return values

    def save(self, folder: Path) -> None:
        """Write a checkpoint of Hugging Face's form, adapters merged into a copy of the weights.

        Raises:
            OutputError: It cannot be written.
        """
        with saving(folder):
            if self.adapters is None:
                self.model.save_pretrained(folder)
            else:
                save_merged(self.model, folder)
            for file in self.encoder.files:
                shutil.copy(file, folder / file.name)

    def save_trained(self, folder: Path) -> None:
        """Write the weights of the model that training changes: the whole checkpoint, or the adapters alone.

        Raises:
            OutputError: It cannot be written.
        """
        if self.adapters is None:
            self.save(folder / MODEL)
        else:
            with saving(folder):
                save_adapters(self.adapters, folder / ADAPTER)

    def load_trained(self, folder: Path) -> None:
        """Put back what `save_trained` wrote, bit for bit.

        Raises:
            OSError: It is not there.
            ValueError: It is of another model.
            RuntimeError: Likewise.
            SafetensorError: It is not whole.
        """
        if self.adapters is None:
            saved = AutoModelForImageTextToText.from_pretrained(folder / MODEL, dtype=self.model.dtype)
            self.model.load_state_dict(saved.state_dict())
        else:
            load_adapters(self.adapters, folder / ADAPTER)

    def _allowed(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits without the tokens that are never written."""
        return logits.index_fill(-1, torch.tensor(self.never, dtype=torch.int64, device=logits.device), -torch.inf)

    def _inputs(self, prompts: Sequence[Encoded]) -> dict[str, Any]:
        batch = self.encoder.collate(prompts, self.device, self.model.dtype)
        if not self._takes_types:
            del batch["mm_token_type_ids"]
        return batch


def each_once(things: Sequence[T]) -> tuple[list[T], list[int]]:
    """Things without those that came before, and the place of each in these; only the same object is the same."""
    known: dict[int, int] = {}
    once: list[T] = []
    for thing in things:
        if id(thing) not in known:
            known[id(thing)] = len(once)
            once.append(thing)
    return once, [known[id(thing)] for thing in things]


def entropy_of(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of distributions over the last dimension; tokens of no probability count nothing."""
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs.masked_fill(logprobs.isneginf(), 0.0)).sum(-1)
