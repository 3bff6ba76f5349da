"""The game's oracle, responding in the full format with the true perception."""

from __future__ import annotations

from typing import Any

import numpy as np

from vlmgym.errors import PolicyError, UsageError
from vlmgym.policies.base import StatePolicy
from vlmgym.sandbox.core.game import Game


class OraclePolicy(StatePolicy):
    """Plays `game.best_action`."""

    name = "oracle"

    def check(self, game: Game[Any, Any]) -> None:
        """Check that the game has an oracle."""
        if type(game).best_action is Game.best_action:
            raise UsageError(f"{game.name} has no oracle: choose another --policy")

    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """Return the full response for the best action."""
        action = game.best_action(state)
        if action is None:
            raise PolicyError(f"the oracle of {game.name} finds no action in the state {game.to_json(state)}")
        return game.respond(state, action)
