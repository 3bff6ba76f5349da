"""What worker processes do: start an episode, play turns. Pure functions of values that travel between processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vlmgym.evaluation.record import EpisodeRecord, GameRecord, RewardRecord, TurnRecord, versions
from vlmgym.policies.base import Reply, StatePolicy, policy_rng
from vlmgym.sandbox.episode import Episode, Snapshot
from vlmgym.sandbox.game import Game, Picture
from vlmgym.sandbox.prompt import PastTurn, turn_prompt
from vlmgym.sandbox.reward import RewardConfig

TURN_LIMIT = "turn limit"


@dataclass(frozen=True, slots=True)
class Rules:
    """What all episodes of a run have in common."""

    game: Game[Any, Any]
    reward: RewardConfig
    max_turns: int
    history: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where an episode stands between two turns.

    Attributes:
        snapshot: The episode.
        past: Earlier turns that prompts repeat, at most `Rules.history`.
        end: Why the episode is over, or None.
        terminated: Whether the game itself ended it.
        images: Pictures for a policy that looks at them, else None.
        prompt: What the policy is told.
    """

    snapshot: Snapshot
    past: tuple[PastTurn, ...]
    end: str | None
    terminated: bool
    images: list[Picture] | None
    prompt: str


def start(rules: Rules, seed: int, draw: bool) -> Position:
    """The first position of an episode."""
    return _position(rules, Episode(rules.game, seed, rules.reward), (), draw)


def respond(rules: Rules, position: Position, reply: Reply, latency: float) -> tuple[TurnRecord, Position]:
    """Play a model's reply, and draw what it sees next."""
    episode = Episode.restore(rules.game, position.snapshot, rules.reward)
    turn = _play(episode, position, reply, latency)
    return turn, _position(rules, episode, _remember(rules, position.past, turn), draw=True)


def play_on(rules: Rules, position: Position, policy: StatePolicy, at_most: int) -> tuple[list[TurnRecord], Position]:
    """Let a policy that answers from the state play up to so many turns."""
    episode = Episode.restore(rules.game, position.snapshot, rules.reward)
    turns: list[TurnRecord] = []
    while position.end is None and len(turns) < at_most:
        response = policy.respond(rules.game, episode.state, policy_rng(episode.seed, episode.turn))
        turns.append(_play(episode, position, Reply(response), None))
        position = _position(rules, episode, _remember(rules, position.past, turns[-1]), draw=False)
    return turns, position


def finish(rules: Rules, policy: str, position: Position, turns: list[TurnRecord]) -> EpisodeRecord:
    """The record of an episode that is over."""
    snapshot, game = position.snapshot, rules.game
    state = game.from_json(snapshot.state)
    return EpisodeRecord(
        versions=versions(),
        game=GameRecord.of(game),
        policy=policy,
        reward=rules.reward,
        history=rules.history,
        max_turns=rules.max_turns,
        seed=snapshot.seed,
        turns=tuple(turns),
        final_state=game.to_data(state),
        end=position.end or TURN_LIMIT,
        terminated=position.terminated,
        score=snapshot.score,
        metrics=dict(game.metrics(state, [turn.info for turn in turns])),
    )


def _position(rules: Rules, episode: Episode[Any, Any], past: tuple[PastTurn, ...], draw: bool) -> Position:
    ended = episode.ended
    end = TURN_LIMIT if ended is None and episode.turn >= rules.max_turns else ended
    goes_on = end is None
    return Position(
        snapshot=episode.snapshot(),
        past=past,
        end=end,
        terminated=ended is not None,
        images=rules.game.images(episode.state) if draw and goes_on else None,
        prompt=turn_prompt(rules.game, episode.state, episode.feedback, past) if goes_on else "",
    )


def _play(episode: Episode[Any, Any], position: Position, reply: Reply, latency: float | None) -> TurnRecord:
    state = episode.game.to_data(episode.state)
    response = storable(reply.text)
    scored = episode.respond(response)
    seen = scored.perception
    return TurnRecord(
        turn=episode.turn,
        state=state,
        prompt=position.prompt,
        response=response,
        outcome=scored.outcome,
        action=list(scored.action) if isinstance(scored.action, tuple) else scored.action,
        feedback=scored.feedback,
        reward=RewardRecord(
            overall=scored.overall,
            game=scored.game,
            format=scored.format,
            perception=None if seen is None else seen.partial,
            perception_exact=None if seen is None else seen.exact,
        ),
        info=dict(scored.info),
        latency=latency,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
    )


def storable(text: str) -> str:
    """The text itself; only halves of surrogate pairs, which no UTF-8 file can hold, are written as `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _remember(rules: Rules, past: tuple[PastTurn, ...], turn: TurnRecord) -> tuple[PastTurn, ...]:
    latest = PastTurn(turn.turn, turn.response, turn.outcome, turn.reward.game, turn.feedback)
    return (*past, latest)[-rules.history :] if rules.history else ()


def without_images(position: Position) -> Position:
    """The position as it travels back to a worker, which does not need the pictures again."""
    return replace(position, images=None)
