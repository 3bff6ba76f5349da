"""vlmgym: parallel visual games for vision-language models.

Importing this package registers the games with Gymnasium. It never imports torch, ray, vllm or openai.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

# Without these settings, importing pygame prints a greeting and a deprecation warning from setuptools.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", module="pygame.pkgdata")

__version__ = "0.1.0"

from vlmgym.errors import UsageError, VlmgymError
from vlmgym.sandbox import game_ids, make_game, register_game

if TYPE_CHECKING:
    from vlmgym.api import *
    from vlmgym.sandbox.envs.vector import make_vec

__all__ = [
    "Episode",
    "Outcome",
    "RewardConfig",
    "Row",
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
    "register_game",
    "reward_fn",
    "score",
    "to_hf_dataset",
]


def __getattr__(name: str) -> Any:
    """Import other public names on first use: listing games needs neither pygame nor `vlmgym.api`."""
    if name == "make_vec":
        from vlmgym.sandbox.envs.vector import make_vec

        return make_vec
    if name in __all__:
        from vlmgym import api

        return getattr(api, name)
    raise AttributeError(f"module 'vlmgym' has no attribute {name!r}")
