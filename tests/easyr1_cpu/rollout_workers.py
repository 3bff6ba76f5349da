"""Rollout workers and prompts for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from verl.trainer.config import DataConfig
from verl.workers.config import ModelConfig

from vlmgym.sandbox.registry import make_game
from vlmgym.training.easyr1.batch import PromptEncoder, load_processors
from vlmgym.training.easyr1.episodes import RolloutWorker
from vlmgym.training.easyr1.settings import Section

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "training" / "configs"
SECTION = Section.read(
    {"games": [{"game": "2048", "overrides": {"size": 128}}], "play": {"max_turns": 3}, "rollout_workers": 0}
)


def encoder_of(checkpoint: Path, longest: int = 400) -> PromptEncoder:
    data = DataConfig(max_prompt_length=longest, min_pixels=None, max_pixels=None)
    return PromptEncoder(*load_processors(ModelConfig(str(checkpoint)), data), data)


def worker_of(checkpoint: Path) -> RolloutWorker:
    return RolloutWorker(SECTION, encoder_of(checkpoint, 600), 0, "tiny")


def a_prompt(size: int = 128) -> tuple[str, list[Any]]:
    game = make_game("2048", size=size)
    state = game.start(np.random.default_rng(0))
    return game.prompt(state), list(game.images(state))
