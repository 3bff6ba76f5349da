"""Three responses to a position, scored as every response is: a good one, a bad one, and one in no form at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vlmgym.cli.gallery.exhibits import AnyGame, Exhibit
from vlmgym.sandbox.core.reward import Outcome, Scored, score_response

OTHERS = 4
"""Positions among which the one is sought whose best response does worst here."""


@dataclass(frozen=True)
class Example:
    """A response and what it earned.

    Attributes:
        title: What is good or bad about it.
        response: What was said.
        scored: What it earned.
    """

    title: str
    response: str
    scored: Scored[Any, Any]


def examples(exhibit: Exhibit, game: AnyGame, state: Any) -> list[Example]:
    """Responses to a position of an exhibit, from best to worst; none of a game without an oracle.

    The bad one is what the oracle would say of another position: well formed and sure of itself, but not of what the
    image shows. The last one names the oracle's action in prose.
    """
    action = game.best_action(state)
    if action is None:
        return []

    def score(title: str, response: str) -> Example:
        return Example(title, response, score_response(game, state, response, np.random.default_rng(exhibit.seed)))

    others = [exhibit.position(game, 1 + i) for i in range(OTHERS)]
    blind = (score("right for another image", _best(game, other)) for other in others)
    return [
        score("by the oracle", _best(game, state)),
        min(blind, key=_worth),
        score("the oracle's, without its form", f"{game.explain(state, action)} My answer is {game.format(action)}."),
    ]


def _best(game: AnyGame, state: Any) -> str:
    return game.respond(state, game.best_action(state))


def _worth(example: Example) -> tuple[bool, float, float]:
    """Illegal is worst; then what earns little, and sees little."""
    scored = example.scored
    return scored.outcome is Outcome.PLAYED, scored.game, scored.perception.partial if scored.perception else 0.0
