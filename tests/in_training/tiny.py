"""A tiny model, prompts with images, and responses of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.local.actor import Actor, ModelConfig, Sample
from training.local.cold_start import ColdStartConfig, cold_start
from training.tiny_vlm import Kind, TinySize, make_tiny_vlm
from vlmgym import make_game
from vlmgym.sandbox.core.game import ImageArray

GAME: Any = make_game("2048", rows=3, columns=3, goal=16, size=96)
ALIKE = 1e-5
"""How far apart numbers of type float32 are that should be equal."""


def make_checkpoint(folder: Path, kind: Kind = "qwen3_vl") -> Path:
    """A model whose next token depends on image and prompt."""
    torch.set_num_threads(1)
    texts = [text for said, _ in questions(4) for text in (said, "<answer>up</answer>")]
    make_tiny_vlm(kind, folder, size=TinySize(tied=False, vocabulary=700), texts=texts)
    return folder


def make_actor(folder: Path, *, critic: bool = False, **config: Any) -> Actor:
    """That model on a CPU."""
    return Actor(folder, ModelConfig(device="cpu", **config), critic=critic)


def questions(count: int) -> list[tuple[str, list[ImageArray]]]:
    """Prompts of different lengths, with one image or two, all of which are different."""
    states = [GAME.start(np.random.default_rng(seed)) for seed in range(count)]
    images = [GAME.images(state) for state in states]
    asked = [GAME.instructions(state) + " up" * 3 * number for number, state in enumerate(states)]
    return [(text, images[n] + images[n - 1] * (n % 2)) for n, text in enumerate(asked)]


def samples(actor: Actor, lengths: Sequence[int]) -> list[Sample]:
    """Those prompts with random responses of these lengths."""
    rng = np.random.default_rng(0)
    words = [token for token in range(len(actor.encoder.tokenizer)) if token not in actor.never]
    return [
        Sample(actor.encoder.encode(text, images), rng.choice(words, length).tolist())
        for (text, images), length in zip(questions(len(lengths)), lengths)
    ]


def make_player(folder: Path) -> Path:
    """A model that writes moves, one as often as another, whatever it sees; it takes a second."""
    actor = make_actor(make_checkpoint(folder / "before"))
    asked = [actor.encoder.encode(text, images) for text, images in questions(16)]
    moves = [actor.encoder.tokens(f"<answer>{move}</answer>") for move in ("up", "right", "down", "left")]

    batches = [[Sample(asked[(4 * step + n) % len(asked)], move) for n, move in enumerate(moves)] for step in range(60)]
    cold_start(actor, ColdStartConfig(steps=60), 64, batches, lambda: 0.0, lambda step, loss: None)
    actor.save(folder)
    return folder
