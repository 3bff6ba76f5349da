"""The one place that turns (state, response) into numbers; every trainer and the evaluator call it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from vlmgym.errors import EpisodeEnded, IllegalAction, ParseError, UsageError, describe_validation_error
from vlmgym.sandbox.core.game import ActionT, Game, StateT
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.response_format import parse_response

Shaping = Literal["raw", "sign", "log2"]


LARGEST = 1e6
"""Largest weight or penalty, so that no reward is infinite."""


class Outcome(str, Enum):
    """What became of a response. An infrastructure error is never an outcome: it is not a response."""

    PLAYED = "played"
    ILLEGAL = "illegal"
    UNPARSABLE = "unparsable"


class RewardConfig(BaseModel):
    """How the parts of a reward are shaped and weighed: total = sum of weight x part.

    The game part is shaped by `shaping`: `raw` leaves it; `sign` is -1, 0 or 1; `log2` is sign(r) log2(1 + |r|). The
    penalties `illegal` and `unparsable` stand for the shaped game part of such a turn. The score of an episode, a sum
    of the game's own rewards, does not depend on any of this.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    game_weight: float = Field(
        1.0, ge=-LARGEST, le=LARGEST, description="Weight of the game's own reward, after shaping."
    )
    format_weight: float = Field(
        0.0, ge=-LARGEST, le=LARGEST, description="Weight of the response form: 1 if it is exact, else 0."
    )
    perception_weight: float = Field(
        0.0, ge=-LARGEST, le=LARGEST, description="Weight of the agreement of <perception> with the state."
    )
    perception_mode: Literal["partial", "exact"] = Field("partial", description="Share of right cells, or all or none.")
    shaping: Shaping = Field("raw", description="Shape of the game part.")
    illegal: float | None = Field(
        None, ge=-LARGEST, le=LARGEST, description="Shaped game part of an illegal action; None: the game's own."
    )
    unparsable: float | None = Field(
        None, ge=-LARGEST, le=LARGEST, description="As illegal, of an unparsable response."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[RewardConfig]) -> RewardConfig:
        try:
            return handler(data)
        except ValidationError as error:
            raise UsageError(f"reward: {describe_validation_error(error)}") from None


@dataclass(frozen=True, slots=True)
class Scored(Generic[StateT, ActionT]):
    """One response, or one native action, in numbers.

    Attributes:
        total: What a trainer maximises: the weighed sum of the shaped parts.
        game: The game's own reward, unshaped; a score is a sum of these.
        format: 1.0 if the response form is exact, else 0.0 (a native action: 0.0).
        perception: Agreement of `<perception>` with the state, 0 where the response has none; None for a native action
            and in a game without a truth to compare with.
        outcome: Played, illegal or unparsable.
        action: The action, None if unparsable.
        next_state: The position afterwards; unless played, `game.on_invalid` of that before, in most games the same.
        terminated: Whether the episode has ended.
        feedback: Why nothing was played, in words; empty if played.
        info: The game's facts about the step.
    """

    total: float
    game: float
    format: float
    perception: Perception | None
    outcome: Outcome
    action: ActionT | None
    next_state: StateT
    terminated: bool
    feedback: str
    info: Mapping[str, Any] = field(default_factory=dict)


def score_response(
    game: Game[StateT, ActionT],
    state: StateT,
    response: str,
    rng: np.random.Generator,
    config: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
) -> Scored[StateT, ActionT]:
    """Score a response to a position, and play it if it is legal.

    Args:
        game: The game.
        state: The position that the response answers.
        response: What the model said, unchanged.
        rng: Chance of the game; advanced only by a legal action.
        config: Weights and shaping.

    Raises:
        EpisodeEnded: The position is an ended one.
    """
    parsed = parse_response(response)
    form = parsed.format_reward(game.longest_answer)
    seen = game.perceive(state, parsed.perception or "")
    try:
        action = game.parse(response)
    except ParseError as error:
        return _not_played(game, state, Outcome.UNPARSABLE, None, str(error), form, seen, config)
    return _play(game, state, action, rng, form, seen, config)


def score_action(
    game: Game[StateT, ActionT],
    state: StateT,
    action: ActionT,
    rng: np.random.Generator,
    config: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
) -> Scored[StateT, ActionT]:
    """Score a native action, without format and perception parts; otherwise as `score_response`."""
    return _play(game, state, action, rng, 0.0, None, config)


def weigh(config: RewardConfig, outcome: Outcome, game: float, form: float, seen: Perception | None) -> float:
    """The total reward of a response from its parts, which are those of `Scored`.

    Args:
        config: Weights and shaping.
        outcome: What became of the response.
        game: The game's own reward, unshaped.
        form: The format part.
        seen: The perception part; None counts as 0.
    """
    penalty = {Outcome.ILLEGAL: config.illegal, Outcome.UNPARSABLE: config.unparsable}.get(outcome)
    game_part = shape(game, config.shaping) if penalty is None else penalty
    perception = 0.0 if seen is None else seen.exact if config.perception_mode == "exact" else seen.partial
    return config.game_weight * game_part + config.format_weight * form + config.perception_weight * perception


def shape(reward: float, shaping: Shaping) -> float:
    """A game reward shaped by a preset of `RewardConfig`."""
    if shaping == "raw":
        return reward
    if shaping == "sign":
        return float((reward > 0) - (reward < 0))
    return math.copysign(math.log2(1.0 + abs(reward)), reward)


def _play(
    game: Game[StateT, ActionT],
    state: StateT,
    action: ActionT,
    rng: np.random.Generator,
    form: float,
    seen: Perception | None,
    config: RewardConfig,
) -> Scored[StateT, ActionT]:
    try:
        step = game.step(state, action, rng)
    except IllegalAction as error:
        return _not_played(game, state, Outcome.ILLEGAL, action, str(error), form, seen, config)
    total = weigh(config, Outcome.PLAYED, step.reward, form, seen)
    return Scored(total, step.reward, form, seen, Outcome.PLAYED, action, step.state, step.terminated, "", step.info)


def _not_played(
    game: Game[StateT, ActionT],
    state: StateT,
    outcome: Outcome,
    action: ActionT | None,
    feedback: str,
    form: float,
    seen: Perception | None,
    config: RewardConfig,
) -> Scored[StateT, ActionT]:
    if (reason := game.ended(state)) is not None:
        raise EpisodeEnded(f"this episode of {game.name} has ended ({reason}): start another")
    reward = game.illegal_reward
    total = weigh(config, outcome, reward, form, seen)
    after = game.on_invalid(state)
    ended = game.ended(after) is not None
    return Scored(total, reward, form, seen, outcome, action, after, ended, feedback)
