"""The trained model: rolls out episodes, computes log-probabilities and values, saves and loads weights."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForImageTextToText
from transformers.utils.logging import disable_progress_bar

from vlmgym.errors import EpisodeError, UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.checkpoint import error_text
from vlmgym.policies.local_model import SeededSampler
from vlmgym.sandbox.core.prompt import ObservationType
from vlmgym.training.config import Kind, ModelConfig, RolloutConfig
from vlmgym.training.engine.encoding import Encoder, TrainSample
from vlmgym.training.engine.families import EncodedPrompt, Prefill
from vlmgym.training.engine.weights import add_lora, load_adapters, save_merged, saving
from vlmgym.training.states import EpisodeRollout, Expert

MODEL, ADAPTER = "model", "adapter"
"""Subfolders for a full checkpoint and for adapters."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Fields of text configs of mixtures of experts, whose experts LoRA does not reach and whose routers need a loss."""
MAX_DIFFERENCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""Largest difference between log-probabilities that rounding explains."""
T = TypeVar("T")
_TOKEN_STREAM = 0x746F6B656E73
"""Gives token sampling its own random stream, separate from state sampling."""
_LOADING = threading.Lock()
"""Held while a model loads: when two threads load models simultaneously, transformers mistakes some weights for
missing and initialises them at random."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Model outputs for a batch of responses. All tensors have shape (responses, tokens of the longest response).

    Attributes:
        logprobs: Log-probability of each token at the sampling temperature, 0 for padding.
        entropy: Entropy of each token's distribution in nats, 0 for padding.
        mask: True for response tokens, False for padding.
        values: The critic's value estimate before each token; None without a critic.
        divergence: Reverse KL divergence of each token's distribution from the teacher's in nats, 0 for padding; None
            without a teacher.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor
    mask: torch.Tensor
    values: torch.Tensor | None
    divergence: torch.Tensor | None = None


class Actor(nn.Module):
    """The vision-language model in training.

    For PPO, a value head reads a token's hidden state in the last layer, concatenated with the mean hidden state of the
    image tokens.
    """

    def __init__(self, checkpoint: Path | str, config: ModelConfig, *, critic: bool = False) -> None:
        """Load a checkpoint; raise `UsageError` unless it can be trained and the device exists."""
        super().__init__()
        self.encoder = Encoder(checkpoint, config.enable_thinking)
        self.family = self.encoder.family
        kind, experts = self.family.config.model_type, self.family.config.get_text_config()
        if any(getattr(experts, name, None) for name in EXPERTS):
            raise UsageError(f"cannot train {checkpoint}: {kind} is a mixture of experts; train a dense model")
        try:
            with _LOADING:
                disable_progress_bar()  # its lock makes Python warn of a leak if a process is killed
                model = AutoModelForImageTextToText.from_pretrained(
                    checkpoint,
                    dtype=getattr(torch, config.dtype),
                    attn_implementation="sdpa",
                )
        except (OSError, ValueError, ImportError) as error:
            raise UsageError(f"cannot load the model {checkpoint}: {error_text(error)}") from None
        text_config = model.config.get_text_config()
        self.shares_prompts = not config.gradient_checkpointing
        """With gradient checkpointing, layers in training mode keep no cache for samples to share."""
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.suppressed = self.family.suppressed()
        """Image tokens, which are never sampled."""
        ends = model.generation_config.eos_token_id
        self.ends = {self.encoder.end, *(ends if isinstance(ends, list) else [ends])}
        """Tokens that end a response, as when a server runs the checkpoint."""
        self.context: int = text_config.max_position_embeddings
        self.adapters = add_lora(model, config.lora, self.family.lora_targets(model)) if config.lora else None
        self.model = model
        self.critic = nn.Linear(2 * text_config.hidden_size, 1) if critic else None
        if self.critic is not None:
            nn.init.zeros_(self.critic.weight)
            nn.init.zeros_(self.critic.bias)
        self._scale = text_config.hidden_size**-0.5
        """Makes the scale of values independent of the model width."""
        bias = torch.zeros(len(model.get_output_embeddings().weight), dtype=model.dtype)
        bias[self.suppressed] = -1e30
        self.register_buffer("token_bias", bias, persistent=False)
        """Added to logits to rule out image tokens; finite, because -inf would make the entropy NaN."""
        self.family.prepare(model)
        model.train()  # gradient checkpointing needs training mode
        try:
            self.to(config.used_device)
        except (RuntimeError, AssertionError) as error:
            if "out of memory" in str(error):
                raise
            raise UsageError(f"cannot move the model to the device {config.used_device}: {error_text(error)}") from None
        if model.config.model_type not in get_args(Kind):
            self._compare_with_transformers(checkpoint)

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        device: torch.device = self.model.device
        return device

    @torch.no_grad()
    def _compare_with_transformers(self, checkpoint: Path | str) -> None:
        """Raise `UsageError` unless log-probabilities equal those of transformers' own forward pass.

        This finds what `Family` knows nothing of, such as scaled logits or positions of another kind.
        """
        image, response = np.zeros((64, 64, 3), np.uint8), self.encoder.tokens("<answer>up</answer>")
        prompts = [self.encoder.encode(text, [image]) for text in ("Where to?", "up, down, left or right?")]
        samples = [TrainSample(prompts[number], response) for number in (0, 0, 1)]
        self.model.eval()
        rows = self.compute_logprobs(samples).logprobs
        for sample, row in zip(samples, rows):
            inputs = self._inputs([sample.prompt], [response])
            del inputs["position_ids"]
            logits = self.model(**inputs).logits[0, len(sample.prompt.ids) - 1 : -1].float() + self.token_bias
            expected = logits.log_softmax(-1).gather(-1, torch.tensor(response, device=self.device)[:, None])[:, 0]
            difference = float((row - expected).abs().max())
            if not difference <= MAX_DIFFERENCE[self.model.dtype]:
                kind = self.model.config.model_type
                raise UsageError(
                    f"cannot train {checkpoint}: log-probabilities of the model type {kind} differ from those of "
                    f"transformers by {difference:.2g}, so it needs a family of its own; see docs/models.md"
                )
        self.model.train()

    def reply(self, prompt: EncodedPrompt, response: Sequence[int]) -> Reply:
        """Decode a response into a `Reply`, with token counts and finish reason."""
        return Reply(
            self.encoder.text(response),
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(response),
            finish_reason="stop" if response[-1] in self.ends else "length",
        )

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        index: Sequence[int],
        seeds: Sequence[int],
        max_tokens: int,
        temperature: float,
    ) -> list[list[int]]:
        """Generate responses as token ids; temperature 0 decodes greedily.

        A response includes its end token, unless it was cut off. Each prompt is prefilled once; `index` has the index
        of each response's prompt. `seeds` has a seed per response, so that sampling does not depend on the rest of the
        batch. Raises `UsageError` if a prompt exceeds the context.
        """
        length = max(len(prompt.ids) for prompt in prompts)
        if length >= self.context:
            raise UsageError(f"a prompt of {length:,} tokens does not fit the model's context of {self.context:,}")
        self.model.eval()
        prefill = self._prefill(prompts, index)
        limits = [min(max_tokens, self.context - len(prompts[number].ids)) for number in index]
        decoder = self.family.decoder(self.model, prefill, max(limits))
        hidden = prefill.hidden[prefill.rows, -1]
        sampler = SeededSampler(seeds, temperature) if temperature else None
        responses: list[list[int]] = [[] for _ in index]
        active = list(range(len(index)))
        while True:
            logits = self._logits(hidden)
            tokens = logits.argmax(-1) if sampler is None else sampler.draw(logits)
            for number, token in zip(active, tokens.tolist()):
                responses[number].append(token)
            finished = [
                row
                for row, number in enumerate(active)
                if responses[number][-1] in self.ends or len(responses[number]) == limits[number]
            ]
            if len(finished) == len(active):
                break
            if finished:
                order = decoder.drop(finished)
                active = [active[row] for row in order]
                tokens = tokens[order]
                sampler = None if sampler is None else sampler.select(order)
            hidden = decoder.forward(tokens)
        self.model.train()
        return responses

    def compute_logprobs(
        self,
        samples: Sequence[TrainSample],
        temperature: float = 1.0,
        *,
        entropy_grad: bool = False,
        teacher: torch.Tensor | None = None,
    ) -> LogProbs:
        """Compute log-probabilities, entropies and values of responses, with gradients.

        Samples with the same prompt object share its forward pass, except with gradient checkpointing. With
        `entropy_grad`, the entropy has gradients too, which needs more memory. `teacher` has the `distributions` of a
        teacher, from which the divergence is computed.
        """
        tokens, mask = self.encoder.collate_responses([sample.response for sample in samples], self.device)
        hidden, image = self._forward(samples, tokens, mask)
        distributions = self._logits(hidden).div_(temperature).log_softmax(-1)
        mask = mask.bool()
        logprobs = distributions.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
            entropy = -(distributions.exp() * distributions).sum(-1)
        values = None
        if self.critic is not None:
            # Until the response describes the image, hidden states say little about it, hence the image mean.
            features = torch.cat([hidden, image.expand_as(hidden)], dim=-1).to(self.critic.weight.dtype)
            values = self.critic(self._scale * features).squeeze(-1).float()
        divergence = None
        if teacher is not None:
            size = min(teacher.shape[-1], distributions.shape[-1])  # either may have rows for unused tokens
            gaps = distributions[..., :size] - teacher[..., :size]
            divergence = (distributions[..., :size].exp() * gaps).sum(-1).masked_fill(~mask, 0.0)
        return LogProbs(logprobs.masked_fill(~mask, 0.0), entropy.masked_fill(~mask, 0.0), mask, values, divergence)

    @torch.no_grad()
    def distributions(self, samples: Sequence[TrainSample], temperature: float) -> torch.Tensor:
        """Compute the log-probabilities of all tokens at each token of responses, without gradients.

        Returns:
            Shape (responses, tokens of the longest response, vocabulary).
        """
        tokens, mask = self.encoder.collate_responses([sample.response for sample in samples], self.device)
        hidden, _ = self._forward(samples, tokens, mask)
        return self._logits(hidden).div_(temperature).log_softmax(-1)

    def _forward(
        self, samples: Sequence[TrainSample], tokens: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run samples through the model, equal prompts once; see `_forward_cached`."""
        prompts, index = deduplicate([sample.prompt for sample in samples])
        if len(prompts) < len(samples) and self.shares_prompts:
            return self._forward_cached(self._prefill(prompts, index), tokens, mask)
        return self._forward_whole(samples, tokens.shape[1])

    def _prefill(self, prompts: Sequence[EncodedPrompt], index: Sequence[int]) -> Prefill:
        batch = self._inputs(prompts)
        cache = self.family.cache(self.model)
        out = self.model.model(**batch, past_key_values=cache, use_cache=True)
        return Prefill(out.last_hidden_state, batch, cache, index)

    def _forward_cached(
        self, prefill: Prefill, tokens: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Continue prefilled prompts with responses.

        Returns:
            The hidden state that predicts each token, shape (responses, longest response, width), and the mean hidden
            state of each prompt's image tokens, shape (responses, 1, width).
        """
        hidden, steps = prefill.hidden[prefill.rows, -1:], tokens.shape[1] - 1
        if steps:
            rest = self.family.text_model(self.model)(
                input_ids=tokens[:, :-1],
                attention_mask=torch.cat([prefill.mask, mask[:, :-1]], dim=1),
                position_ids=prefill.positions + torch.arange(steps, device=self.device),
                past_key_values=prefill.select(),
                use_cache=True,
            )
            hidden = torch.cat([hidden, rest.last_hidden_state], dim=1)
        return hidden, self._image_mean(prefill.hidden, prefill.ids)[prefill.rows]

    def _forward_whole(self, samples: Sequence[TrainSample], steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run prompts and responses through the model in one pass; same return values as `_forward_cached`."""
        batch = self._inputs([sample.prompt for sample in samples], [sample.response for sample in samples])
        hidden = self.model.model(**batch, use_cache=False).last_hidden_state
        rows, length, width = hidden.shape
        starts = torch.tensor([length * row + len(sample.prompt.ids) - 1 for row, sample in enumerate(samples)])
        index = (starts[:, None] + torch.arange(steps)).clamp(max=rows * length - 1)  # beyond a response: any row
        before = hidden.view(-1, width).index_select(0, index.flatten().to(self.device)).view(rows, steps, width)
        return before, self._image_mean(hidden, batch["input_ids"])

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute logits in float32, with image tokens ruled out."""
        return F.linear(hidden, self.model.get_output_embeddings().weight, self.token_bias).float()

    def _image_mean(self, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Average the hidden states of each prompt's image tokens, shape (prompts, 1, width)."""
        images = (ids == self.family.image_token).unsqueeze(-1)
        return (hidden * images).sum(dim=1, keepdim=True) / images.sum(dim=1, keepdim=True).clamp(min=1)

    def save(self, folder: Path) -> None:
        """Save a Hugging Face checkpoint, with adapters merged; raise `OutputError` if it cannot be written."""
        with saving(folder):
            if self.adapters is None:
                self.model.save_pretrained(folder)
            else:
                save_merged(self.model, folder)
            for file in self.encoder.files:
                shutil.copy(file, folder / file.name)

    def save_trained(self, folder: Path) -> None:
        """Save the trained weights: the adapters if any, else the full model; raise `OutputError` on failure."""
        if self.adapters is None:
            self.save(folder / MODEL)
        else:
            with saving(folder):
                self.adapters.save_pretrained(folder / ADAPTER)

    def load_trained(self, folder: Path) -> None:
        """Load what `save_trained` wrote; raise OSError, ValueError, RuntimeError or SafetensorError on failure."""
        if self.adapters is None:
            saved = AutoModelForImageTextToText.from_pretrained(folder / MODEL, dtype=self.model.dtype)
            self.model.load_state_dict(saved.state_dict())
        else:
            load_adapters(self.adapters, folder / ADAPTER)

    def _inputs(
        self, prompts: Sequence[EncodedPrompt], responses: Sequence[Sequence[int]] | None = None
    ) -> dict[str, Any]:
        batch = self.encoder.collate(prompts, responses, self.device, self.model.dtype)
        return self.family.inputs(self.model, batch)


@dataclass(frozen=True, slots=True)
class TeacherActor:
    """The frozen model of a teacher, whose prompts show states in its own way."""

    actor: Actor
    observation: ObservationType

    def encode(self, episode: EpisodeRollout) -> EncodedPrompt:
        """Encode the prompt of an episode's turn; raise `EpisodeError` if the game or the encoding fails."""
        images = [] if self.observation == "text" else episode.observation.images
        return self.actor.encoder.encode(episode.messages(self.observation), images)


def roll_out(
    actor: Actor,
    episodes: Sequence[EpisodeRollout],
    config: RolloutConfig,
    seed: Sequence[int],
    teacher: TeacherActor | None = None,
    expert: Expert | None = None,
) -> tuple[list[list[TrainSample]], float]:
    """Roll out all episodes in parallel until each one ends; an error of its game ends only that episode.

    The sampling seed of each response is derived from `seed`, prompt_id, sample_idx and turn. With a teacher, samples
    have a `teacher_prompt`; with an expert, they have its responses instead of the model's, which take the turns,
    and episodes end where it has none.

    Returns:
        For each episode, a list with one sample per turn; and the seconds spent on scoring and rendering.
    """
    samples: dict[EpisodeRollout, list[TrainSample]] = {episode: [] for episode in episodes}
    seconds_scoring = 0.0
    while running := [episode for episode in episodes if not episode.done]:
        for first in range(0, len(running), config.batch_size):
            batch = running[first : first + config.batch_size]
            unanswered: dict[int, TrainSample] = {}  # by observation, as episodes of a group start with the same one
            for episode in batch:
                try:
                    if id(episode.observation) not in unanswered:
                        unanswered[id(episode.observation)] = encode_turn(actor, episode, teacher)
                except EpisodeError as error:
                    episode.fail(error)
            batch = [episode for episode in batch if not episode.failed]
            if not batch:
                continue
            prompts, index = deduplicate([unanswered[id(episode.observation)].prompt for episode in batch])
            seeds = [token_seed(seed, episode) for episode in batch]
            responses = actor.generate(prompts, index, seeds, config.max_tokens, config.temperature)
            start = time.perf_counter()
            for episode, response in zip(batch, responses):
                sample, target = unanswered[id(episode.observation)], response
                try:
                    if expert is not None:
                        text = episode.demonstrate(expert, np.random.default_rng(token_seed(seed, episode)))
                        if text is None:
                            continue
                        target = actor.encoder.tokens(text)
                    samples[episode].append(replace(sample, response=target))
                    episode.respond(actor.reply(sample.prompt, response))
                except EpisodeError as error:
                    episode.fail(error)
            seconds_scoring += time.perf_counter() - start
    return [*samples.values()], seconds_scoring


def encode_turn(actor: Actor, episode: EpisodeRollout, teacher: TeacherActor | None) -> TrainSample:
    """Encode the prompts of an episode's turn, without a response; raise `EpisodeError` if that fails."""
    teacher_prompt = None if teacher is None else teacher.encode(episode)
    with episode.episode.game_errors():
        truth = actor.encoder.truth(episode.setup.game, episode.episode.state)
    prompt = actor.encoder.encode(episode.observation.messages, episode.observation.images)
    return TrainSample(prompt, [], truth, teacher_prompt=teacher_prompt)


def token_seed(seed: Sequence[int], episode: EpisodeRollout) -> int:
    """Derive the sampling seed of an episode's next response."""
    entropy = [_TOKEN_STREAM, *seed, episode.prompt_id, episode.sample_idx, len(episode.turns)]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def deduplicate(items: Sequence[T]) -> tuple[list[T], list[int]]:
    """Deduplicate by object identity; return the unique items in first-seen order, and each item's index among them."""
    known: dict[int, int] = {}
    unique: list[T] = []
    for item in items:
        if id(item) not in known:
            known[id(item)] = len(unique)
            unique.append(item)
    return unique, [known[id(item)] for item in items]
