"""Three scored example responses: correct, wrong and without the response format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vlmgym.cli.gallery.items import AnyGame, GalleryItem
from vlmgym.sandbox.core.reward import Outcome, Scored, score_response

OTHER_STATES = 4
"""Number of other states to take a wrong response from."""


@dataclass(frozen=True)
class Example:
    """A response with its score and a title."""

    title: str
    response: str
    scored: Scored[Any, Any]


def examples(item: GalleryItem, game: AnyGame, state: Any) -> list[Example]:
    """Return responses to a state from best to worst; none without an oracle.

    The wrong one is the oracle's response to another state; the last names the oracle's action in prose.
    """
    action = game.best_action(state)
    if action is None:
        return []

    def score(title: str, response: str) -> Example:
        return Example(title, response, score_response(game, state, response, np.random.default_rng(item.seed)))

    others = [item.position(game, 1 + i) for i in range(OTHER_STATES)]
    blind = (score("correct for another image", _best(game, other)) for other in others)
    return [
        score("from the oracle", _best(game, state)),
        min(blind, key=_rank),
        score(
            "the oracle's answer, not in the response format",
            f"{game.explain(state, action)} My answer is {game.format(action)}.",
        ),
    ]


def _best(game: AnyGame, state: Any) -> str:
    return game.respond(state, game.best_action(state))


def _rank(example: Example) -> tuple[bool, float, float]:
    """Sort key: illegal first, then by reward and perception."""
    scored = example.scored
    return scored.outcome is Outcome.PLAYED, scored.game, scored.perception.partial if scored.perception else 0.0
