"""vlmgym: parallel visual games for vision-language models.

Importing this package is cheap: it never imports torch, ray, vllm or openai.
"""

from vlmgym.interrupts import exit_quietly_during_imports, is_command

if is_command():
    exit_quietly_during_imports()

import os
import warnings
from typing import TYPE_CHECKING, Any

# Without these settings, importing pygame prints a greeting and a deprecation warning from setuptools.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", module="pygame.pkgdata")

from vlmgym.errors import UsageError, VlmgymError

__version__ = "0.1.0"

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

if not is_command():  # commands that need no games start faster without NumPy and Gymnasium
    from vlmgym.sandbox import game_ids, make_game, register_game  # registers the games with Gymnasium

if TYPE_CHECKING:
    from vlmgym.api import *
    from vlmgym.sandbox.envs.vector.make import make_vec


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because listing the games needs neither pygame nor `vlmgym.records`."""
    if name in ("game_ids", "make_game", "register_game"):
        from vlmgym import sandbox

        return getattr(sandbox, name)
    if name == "make_vec":
        from vlmgym.sandbox.envs.vector.make import make_vec

        return make_vec
    if name in __all__:
        from vlmgym import api

        return getattr(api, name)
    raise AttributeError(f"module 'vlmgym' has no attribute {name!r}")
