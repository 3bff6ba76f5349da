"""vlmgym: parallel visual games for vision-language models.

Importing this package is light: it never imports torch, ray, vllm or openai.
"""

import os
import warnings

# pygame greets on standard output, and asks setuptools for a module that setuptools warns of.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", module="pygame.pkgdata")

from vlmgym.errors import UsageError, VlmgymError
from vlmgym.sandbox.registry import game_ids, make_game, register_game, register_with_gymnasium
from vlmgym.sandbox.vector import make_vec

__version__ = "0.1.0"

__all__ = ["UsageError", "VlmgymError", "__version__", "game_ids", "make_game", "make_vec", "register_game"]

register_with_gymnasium()
