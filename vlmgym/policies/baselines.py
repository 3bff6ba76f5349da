"""Policies that respond to the state: random baselines, and each game's oracle."""

from __future__ import annotations

from typing import Any

import numpy as np

from vlmgym.errors import EpisodeError, UsageError
from vlmgym.policies.base import Prompt, StatePolicy, policy_rng
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.game import Game, pick
from vlmgym.sandbox.core.response_format import answer_only

NO_MOVE = "no oracle move"
"""Why an episode ended if the oracle gave up. The limits of each oracle are on the page of its game."""


class RandomPolicy(StatePolicy):
    """Samples uniformly from the action space, including illegal actions."""

    name = "random"

    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """Return a response that consists of an answer, without perception or reasoning."""
        return answer_only(game.answer.format(game.answer.sample(rng)))


def random_legal_action(game: Game[Any, ActionT], state: Any, rng: np.random.Generator) -> ActionT | None:
    """Draw a legal action uniformly, or any action if the game does not list the legal ones; None if there are none."""
    legal = game.legal_actions(state)
    if legal is None:
        action: ActionT = game.answer.sample(rng)
        return action
    return pick(rng, legal) if legal else None


class RandomLegalPolicy(StatePolicy):
    """Samples uniformly from the legal actions, or from the action space if a game does not list them."""

    name = "random-legal"

    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """Return a response that consists of an answer, without perception or reasoning."""
        return answer_only(game.answer.format(random_legal_action(game, state, rng)))


class OraclePolicy(StatePolicy):
    """Plays `game.best_action`, responding in the full format with the true perception."""

    name = "oracle"

    def check(self, game: Game[Any, Any]) -> None:
        """Check that the game has an oracle."""
        if type(game).best_action is Game.best_action:
            raise UsageError(f"{game.name} has no oracle: choose another --policy")

    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """Return the full response for the best action; raise `EpisodeError` if the oracle finds none."""
        action = game.best_action(state)
        if action is None:
            raise EpisodeError(NO_MOVE)
        return game.respond(state, action, *game.follow_up(state, action))


def random_response(prompt: Prompt) -> str:
    """Return the response of `RandomPolicy` to a prompt; depends only on the prompt's game, seed and turn."""
    return RandomPolicy().respond(prompt.game, None, policy_rng(prompt.seed, prompt.turn))
