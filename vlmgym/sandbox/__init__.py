"""Games, images, words and rewards. Independent of policies, evaluation and training."""

from vlmgym.sandbox.envs.registration import register_game, register_with_gymnasium
from vlmgym.sandbox.registry import PREFIXES, game_ids, make_game

__all__ = ["game_ids", "make_game", "register_game"]

register_with_gymnasium()
PREFIXES["qa/"] = ("vlmgym.sandbox.questions:Questions", "game")
