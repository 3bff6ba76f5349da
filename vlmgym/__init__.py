"""vlmgym: parallel visual games for vision-language models.

Importing this package registers the games with Gymnasium. It never imports torch, ray, vllm or openai.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Without these settings, importing pygame prints a greeting and a deprecation warning from setuptools.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", module="pygame.pkgdata")

__version__ = "0.1.0"

from vlmgym.errors import UsageError, VlmgymError
from vlmgym.sandbox import game_ids, make_game, register_game

if TYPE_CHECKING:
    from vlmgym.evaluation.saved_runs import Runs, SavedRun, read_runs
    from vlmgym.rollout.dataset import Row, dataset_card, make_dataset, make_episodes, to_hf_dataset
    from vlmgym.rollout.episode import Episode, reward_fn, score
    from vlmgym.rollout.states import StateConfig
    from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored
    from vlmgym.sandbox.envs.vector import make_vec

__all__ = [
    "Episode",
    "Outcome",
    "RewardConfig",
    "Row",
    "Runs",
    "SavedRun",
    "Scored",
    "StateConfig",
    "UsageError",
    "VlmgymError",
    "__version__",
    "dataset_card",
    "game_ids",
    "make_dataset",
    "make_episodes",
    "make_game",
    "make_vec",
    "read_runs",
    "register_game",
    "reward_fn",
    "score",
    "to_hf_dataset",
]


_MODULES = {
    **dict.fromkeys(("Runs", "SavedRun", "read_runs"), "evaluation.saved_runs"),
    **dict.fromkeys(("Row", "dataset_card", "make_dataset", "make_episodes", "to_hf_dataset"), "rollout.dataset"),
    **dict.fromkeys(("Episode", "reward_fn", "score"), "rollout.episode"),
    "StateConfig": "rollout.states",
    **dict.fromkeys(("Outcome", "RewardConfig", "Scored"), "sandbox.core.reward"),
    "make_vec": "sandbox.envs.vector",
}


def __getattr__(name: str) -> Any:
    """Import other public names on first use: listing games needs neither pygame nor episodes."""
    if name in _MODULES:
        return getattr(import_module(f"vlmgym.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'vlmgym' has no attribute {name!r}")
