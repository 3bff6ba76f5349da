"""Games, their images, prompts and rewards. Independent of policies, evaluation and training."""

from vlmgym.sandbox.registry import game_ids, make_game, register_game, register_with_gymnasium

__all__ = ["game_ids", "make_game", "register_game"]

register_with_gymnasium()
