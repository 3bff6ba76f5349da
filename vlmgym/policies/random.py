"""Random play: the baseline every score is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from vlmgym.errors import UsageError
from vlmgym.policies.base import Prompt, StatePolicy, policy_rng
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.response_format import answer_only


class RandomPolicy(StatePolicy):
    """Draws uniformly from the whole action space, legal or not."""

    name = "random"

    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """An answer without perception and reasoning."""
        return answer_only(game.format(game.random_action(rng)))


class RandomLegalPolicy(StatePolicy):
    """Draws uniformly from the legal actions."""

    name = "random-legal"

    def check(self, game: Game[Any, Any]) -> None:
        """Refuse a game whose legal actions cannot be listed."""
        if game.legal_actions(game.start(np.random.default_rng(0))) is None:
            raise UsageError(f"the legal actions of {game.name} cannot be listed: choose another --policy")

    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """An answer without perception and reasoning."""
        legal = game.legal_actions(state) or ()
        return answer_only(game.format(legal[int(rng.integers(len(legal)))]))


def random_response(prompt: Prompt) -> str:
    """What `RandomPolicy` answers to this prompt: depends on the episode's seed and turn only."""
    return RandomPolicy().respond(prompt.game, None, policy_rng(prompt.seed, prompt.turn))
