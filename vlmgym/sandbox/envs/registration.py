"""Register games for `gymnasium.make`."""

from __future__ import annotations

from typing import Any

from vlmgym.sandbox import registry
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import NAMESPACE, game_ids


def register_game(game_class: type[Game[Any, Any]]) -> type[Game[Any, Any]]:
    """Register a game with vlmgym and Gymnasium; usable as a class decorator.

    Raises:
        UsageError: See `vlmgym.sandbox.registry.register_game`.
    """
    registry.register_game(game_class)
    _register_env(f"{game_class.name}-v{game_class.version}")
    return game_class


def register_with_gymnasium() -> None:
    """Register every game with Gymnasium; called when `vlmgym.sandbox` is imported.

    Gymnasium 1.0 dropped plugins. Programs that do not import vlmgym must therefore name it before the id:
    `gymnasium.make("vlmgym:vlmgym/2048-v0")`.
    """
    for game_id in game_ids():
        _register_env(game_id)


def _register_env(game_id: str) -> None:
    import gymnasium

    env_id = f"{NAMESPACE}/{game_id}"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point="vlmgym.sandbox.envs.single:GameEnv", kwargs={"game": game_id})
