"""Games, their images, prompts and rewards. Independent of policies, evaluation and training."""

from typing import Any

from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import PREFIXES, game_ids, make_game, register_game, register_with_gymnasium

__all__ = ["game_ids", "make_game", "register_game"]


def _gym_game() -> type[Game[Any, Any]]:
    from vlmgym.sandbox.games.gym.game import GymGame

    return GymGame


def _questions() -> type[Game[Any, Any]]:
    from vlmgym.sandbox.questions import Questions

    return Questions


PREFIXES |= {"gym:": (_gym_game, "env"), "qa/": (_questions, "game")}
register_with_gymnasium()
