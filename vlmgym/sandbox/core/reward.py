"""Score a response in a state; shared by all trainers and the evaluator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from vlmgym.errors import (
    EpisodeEnded,
    IllegalAction,
    ParseError,
    UsageError,
    VlmgymError,
    describe_validation_error,
    short_repr,
)
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.game import Game, StateT
from vlmgym.sandbox.core.perception import Perception, compare_changes
from vlmgym.sandbox.core.response_format import parse_response

Shaping = Literal["raw", "sign", "log2"]

Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
"""A weight or penalty, limited so that rewards stay finite."""


class Outcome(str, Enum):
    """Outcome of a response. Infrastructure errors are not responses and have no outcome."""

    PLAYED = "played"
    ILLEGAL = "illegal"
    UNPARSABLE = "unparsable"


class RewardConfig(BaseModel):
    """Reward weights and shaping: total = sum of weight x part, over the game, format, perception, prediction and
    reasoning parts.

    `shaping` applies to the game part r: `raw` keeps it; `sign` is -1, 0 or 1; `log2` is `sign(r) log2(1 + |r|)`. In
    an illegal or unparsable turn, the penalty `illegal` or `unparsable`, if set, replaces the shaped game part. The
    score of an episode is the sum of the game's own rewards and does not depend on this config.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    game_weight: Weight = Field(1.0, description="Weight of the game's own reward, after shaping.")
    format_weight: Weight = Field(
        0.0, description="Weight of the format reward: 1 if the response format is exact, else 0."
    )
    perception_weight: Weight = Field(0.0, description="Weight of the accuracy of <perception>.")
    prediction_weight: Weight = Field(
        0.0, description="Weight of the accuracy of <prediction>, in games with the config field prediction."
    )
    reasoning_weight: Weight = Field(
        0.0, description="Weight of the fraction of true statements in the thoughts, in games that check them."
    )
    perception_mode: Literal["partial", "exact"] = Field(
        "partial", description="partial: fraction of correct cells; exact: 1 only if all are correct."
    )
    shaping: Shaping = Field("raw", description="Shaping of the game part.")
    illegal: Weight | None = Field(
        None, description="Reward of an illegal action, instead of the shaped game part; None keeps the game part."
    )
    unparsable: Weight | None = Field(None, description="Same as illegal, for an unparsable response.")

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[RewardConfig]) -> RewardConfig:
        try:
            return handler(data)
        except ValidationError as error:
            raise UsageError(f"reward: {describe_validation_error(error)}") from None


class TextScores(NamedTuple):
    """Scores of a response's text: the fraction of true statements (`reasoning`); other fields are as in `Scored`."""

    format: float = 0.0
    perception: Perception | None = None
    prediction: Perception | None = None
    reasoning: float = 0.0
    statements: tuple[bool, ...] = ()


NO_TEXT = TextScores()


@dataclass(slots=True)  # creating a frozen one would take 6% of a step of 2048
class Scored(Generic[StateT, ActionT]):
    """Score of one response or native action.

    Attributes:
        total: Training reward, weighted and shaped by `RewardConfig`.
        game: The game's own reward, before shaping; the score of an episode is the sum of these.
        format: 1.0 if the response format is exact, else 0.0; 0.0 for native actions.
        perception: Accuracy of `<perception>`, 0 if the response has none; None for native actions and for games
            without a ground truth.
        action: The action; None if unparsable. A tuple of all actions of the response if `Game.actions_per_turn` is
            above 1.
        next_state: State after the turn; after an invalid response, from `game.on_invalid`.
        feedback: Why the response was invalid; empty if played.
        info: The game's facts about the step.
        prediction: Accuracy of `<prediction>`, 0 if the response has none or is not played; None for native actions,
            for games that do not ask for it, and if the rules do not determine the board or leave it as it is.
        rewards: The game's own reward of each action, if `Game.actions_per_turn` is above 1.
        statements: Which statements in the thoughts of the response are true, of those that `Game.check_reasoning`
            finds.
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
    prediction: Perception | None = None
    rewards: tuple[float, ...] = ()
    statements: tuple[bool, ...] = ()


def score_response(
    game: Game[StateT, ActionT],
    state: StateT,
    response: str,
    rng: np.random.Generator,
    config: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
) -> Scored[StateT, ActionT]:
    """Score a response in a state, and play its action if it is legal. Scoring itself does not advance `rng`.

    Raises:
        EpisodeEnded: The state is terminal.
    """
    _check_running(game, state)
    parsed = parse_response(response)
    longest = game.answer.longest * game.actions_per_turn
    statements = tuple(game.check_reasoning(state, parsed.thought))
    text = TextScores(
        parsed.format_reward(longest, game.asks_prediction, game.config.think_tag),
        game.perceive(state, parsed.perception or ""),
        Perception(0.0, 0.0) if game.asks_prediction else None,
        sum(statements) / len(statements) if statements else 0.0,
        statements,
    )
    try:
        actions = game.parse_actions(parsed.answer(longest))
    except ParseError as error:
        return _take_turn(game, state, error, rng, config, text)
    if game.asks_prediction:
        text = text._replace(prediction=_score_prediction(game, state, actions, parsed.prediction or ""))
    scored = _take_turn(game, state, actions[0], rng, config, text)
    return scored if game.actions_per_turn == 1 else _play_on(game, scored, actions, rng, config, text)


def _score_prediction(
    game: Game[StateT, ActionT], state: StateT, actions: Sequence[ActionT], text: str
) -> Perception | None:
    """Score a prediction; None if the rules do not determine the board, or leave it as it is."""
    before = game.describe(state)
    try:
        after = game.predict(state, actions)
    except IllegalAction:
        return Perception(0.0, 0.0)
    return None if after in (None, before) else compare_changes(before, after or "", text)


PARTLY = "only the first "
"""Start of the feedback on a response whose first actions were played."""


def _play_on(
    game: Game[StateT, ActionT],
    first: Scored[StateT, ActionT],
    actions: Sequence[ActionT],
    rng: np.random.Generator,
    config: RewardConfig,
    text: TextScores,
) -> Scored[StateT, Any]:
    """Play the actions after the first, up to the end of the episode or an illegal one, and sum the rewards."""
    rewards, infos, scored = [first.game], [first.info], first
    for count, action in enumerate(actions[1:], 1):
        if scored.terminated or scored.outcome is not Outcome.PLAYED:
            break
        scored = _take_turn(game, scored.next_state, action, rng, config, text)
        rewards.append(scored.game)
        infos.append(scored.info)
        if scored.feedback:
            feedback = f"{PARTLY}{count} of {len(actions)} actions were played, because {scored.feedback}"
            scored = replace(scored, feedback=feedback)
    turn: Any = tuple(actions)
    total = weigh(config, scored.outcome, rewards, text)
    return replace(scored, total=total, game=sum(rewards), action=turn, info={"actions": infos}, rewards=tuple(rewards))


def step_infos(game: Game[Any, Any], infos: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the `Step.info` of each action, given the `info` of each turn."""
    if game.actions_per_turn == 1:
        return [*infos]
    return [step for info in infos for step in info.get("actions", [info])]


def score_action(
    game: Game[StateT, ActionT],
    state: StateT,
    action: ActionT,
    rng: np.random.Generator,
    config: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
) -> Scored[StateT, ActionT]:
    """Play and score a native action.

    Raises:
        EpisodeEnded: The state is terminal.
    """
    _check_running(game, state)
    scored = _take_turn(game, state, action, rng, config, NO_TEXT)
    return scored if game.actions_per_turn == 1 else _play_on(game, scored, [action], rng, config, NO_TEXT)


def _check_running(game: Game[StateT, Any], state: StateT) -> None:
    if (reason := game.ended(state)) is not None:
        raise EpisodeEnded(f"this episode of {game.name} has ended ({reason}): start another")


def _take_turn(
    game: Game[StateT, ActionT],
    state: StateT,
    action: ActionT | ParseError,
    rng: np.random.Generator,
    config: RewardConfig,
    text: TextScores,
) -> Scored[StateT, ActionT]:
    """Play an action if it is legal; an unparsable response has a `ParseError` instead of an action."""
    outcome, feedback = Outcome.PLAYED, ""
    if isinstance(action, ParseError):
        outcome, feedback, step = Outcome.UNPARSABLE, str(action), game.on_invalid(state, rng)
    else:
        try:
            step = game.step(state, action, rng)
        except IllegalAction as error:
            outcome, feedback, step = Outcome.ILLEGAL, str(error), game.on_invalid(state, rng)
    reward = step.reward
    if not isinstance(reward, NUMBERS) or not math.isfinite(reward):
        raise VlmgymError(f"the game's reward must be a finite number, got {short_repr(reward)}")
    total = weigh(config, outcome, [float(reward)], text)
    move = None if isinstance(action, ParseError) else action
    ended = (outcome is Outcome.PLAYED or step.state is not state) and game.ended(step.state) is not None
    form, accuracy, prediction, _, checks = text
    return Scored(
        total, reward, form, accuracy, outcome, move, step.state, ended, feedback, step.info, prediction, (), checks
    )


NUMBERS = (float, int, np.floating, np.integer)
"""Types of rewards; checking them takes a fraction of the time of `numbers.Real`."""


def weigh(config: RewardConfig, outcome: Outcome, rewards: Sequence[float], text: TextScores) -> float:
    """Combine the parts of a reward, as in `Scored`, into its total; a part of None counts as 0.

    `rewards` has the game's reward of each action; those before the last were played.
    """
    penalty = None
    if outcome is not Outcome.PLAYED:
        penalty = config.illegal if outcome is Outcome.ILLEGAL else config.unparsable
    parts = [shape(reward, config.shaping) for reward in rewards]
    if penalty is not None:
        parts[-1] = penalty
    exact = config.perception_mode == "exact"
    perception, prediction = _accuracy(text.perception, exact), _accuracy(text.prediction, exact)
    total = config.game_weight * sum(parts) + config.format_weight * text.format
    total += config.perception_weight * perception + config.prediction_weight * prediction
    return total + config.reasoning_weight * text.reasoning


def _accuracy(part: Perception | None, exact: bool) -> float:
    return 0.0 if part is None else part.exact if exact else part.partial


def shape(reward: float, shaping: Shaping) -> float:
    """Shape a game reward; see `RewardConfig`."""
    if shaping == "raw":
        return reward
    if shaping == "sign":
        return float((reward > 0) - (reward < 0))
    return math.copysign(math.log2(1.0 + abs(reward)), reward)
