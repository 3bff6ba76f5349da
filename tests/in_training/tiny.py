"""Tiny models, prompts with images, and random responses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vlmgym import make_game
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.training.config import Kind, ModelConfig, RolloutConfig, TinySize
from vlmgym.training.engine.actor import Actor
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.engine.engine import Engine
from vlmgym.training.sft import Sft, fine_tune
from vlmgym.training.tiny_vlm import make_tiny_vlm

GAME: Any = make_game("2048", rows=3, columns=3, goal=16, size=96)
TOLERANCE = 1e-5
"""Largest difference between float32 results that count as equal."""


def make_checkpoint(folder: Path, kind: Kind = "qwen3_vl", seed: int = 0) -> Path:
    """Create a model whose next token depends on the image and the prompt."""
    torch.set_num_threads(1)
    texts = [text for prompt, _ in make_prompts(4) for text in (prompt, "<answer>up</answer>")]
    make_tiny_vlm(TinySize(kind=kind, tied=False, vocabulary=700), folder, texts, seed=seed)
    return folder


def make_actor(folder: Path, *, critic: bool = False, **config: Any) -> Actor:
    """Load a model, on the CPU by default, with the same initial adapters each time."""
    torch.manual_seed(0)
    return Actor(folder, ModelConfig(**{"device": "cpu", **config}), critic=critic)


def make_engine(actor: Actor, micro_batch_size: int = 64) -> Engine:
    return Engine(actor, RolloutConfig(), micro_batch_size)


def make_prompts(count: int) -> list[tuple[str, list[ImageArray]]]:
    """Create prompts of different lengths, each with one or two images."""
    states = [GAME.start(np.random.default_rng(seed)) for seed in range(count)]
    images = [GAME.images(state) for state in states]
    texts = [GAME.instructions(state) + " up" * 3 * number for number, state in enumerate(states)]
    return [(text, images[n] + images[n - 1] * (n % 2)) for n, text in enumerate(texts)]


def make_samples(actor: Actor, lengths: Sequence[int]) -> list[TrainSample]:
    """Create samples from `make_prompts`, with random responses of the given lengths."""
    rng = np.random.default_rng(0)
    words = [token for token in range(len(actor.encoder.tokenizer)) if token not in actor.suppressed]
    return [
        TrainSample(actor.encoder.encode(text, images), rng.choice(words, length).tolist())
        for (text, images), length in zip(make_prompts(len(lengths)), lengths)
    ]


def make_move_model(folder: Path, kind: Kind = "qwen3_vl") -> Path:
    """Create a model that responds with random moves; takes about a second."""
    actor = make_actor(make_checkpoint(folder / "before", kind))
    prompts = [actor.encoder.encode(text, images) for text, images in make_prompts(16)]
    moves = [actor.encoder.tokens(f"<answer>{move}</answer>") for move in ("up", "right", "down", "left")]
    batches = [
        [TrainSample(prompts[(4 * step + n) % len(prompts)], move) for n, move in enumerate(moves)]
        for step in range(60)
    ]
    fine_tune(make_engine(actor), Sft(steps=60), batches, lambda step: 0.0, lambda step, loss: None)
    actor.save(folder)
    return folder
