"""What worker processes do: start an episode, play turns. Pure functions of values that travel between processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from vlmgym.policies.base import Reply, StatePolicy, policy_rng, recorded_reply
from vlmgym.records.episode import EpisodeRecord, GameRecord, PolicyRecord, RewardRecord, Status, TurnRecord, versions
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.prompt import PastTurn, turn_images, turn_prompt
from vlmgym.sandbox.core.reward import RewardConfig

TURN_LIMIT: Literal["turn limit"] = "turn limit"

Transform = Callable[[ImageArray], Any]


@dataclass(frozen=True, slots=True)
class EpisodeConfig:
    """What all episodes of one game of a run have in common.

    Attributes:
        game: The game.
        reward: Weights and shaping.
        max_turns: The limit of turns.
        history: How many earlier turns a prompt repeats.
        history_images: Of how many of them the images are shown again.
        look: What becomes of each image before the policy gets it; None: nothing is drawn.
    """

    game: Game[Any, Any]
    reward: RewardConfig
    max_turns: int
    history: int = 0
    history_images: int = 0
    look: Transform | None = None


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """Where an episode stands between two turns.

    Attributes:
        snapshot: The episode.
        past: Earlier turns that prompts repeat, at most `EpisodeConfig.history`.
        end: Why the episode is over, or None.
        terminated: Whether the game itself ended it.
        images: What `EpisodeConfig.look` made of the images that the policy is shown; empty if it does not look.
        prompt: What the policy is told.
    """

    snapshot: Snapshot
    past: tuple[PastTurn[Any], ...]
    end: str | None
    terminated: bool
    images: list[Any]
    prompt: str


def start(rules: EpisodeConfig, seed: int) -> EpisodeState:
    """The first position of an episode."""
    return _position(rules, Episode(rules.game, seed, rules.reward), ())


def state_at(rules: EpisodeConfig, snapshot: Snapshot) -> EpisodeState:
    """The position of an episode that begins at a snapshot."""
    return _position(rules, Episode.restore(rules.game, snapshot, rules.reward), ())


def resume_episode(
    rules: EpisodeConfig, seed: int, turns: Sequence[TurnRecord]
) -> tuple[list[TurnRecord], EpisodeState]:
    """Play the responses of an unfinished episode's record again, to go on after them.

    If they lead elsewhere than the record says (another version of the game), the episode starts afresh.

    Returns:
        The turns that were played, which is all of them or none, and the position after them.
    """
    blind = replace(rules, look=None)
    position = start(blind, seed)
    played: list[TurnRecord] = []
    for turn in turns:
        again, position = respond(blind, position, recorded_reply(turn), turn.cost)
        if again.model_dump(mode="json") != turn.model_dump(mode="json"):
            return [], start(rules, seed)
        played.append(again)
    episode = Episode.restore(rules.game, position.snapshot, rules.reward)
    return played, _position(rules, episode, position.past)


def respond(
    rules: EpisodeConfig, position: EpisodeState, reply: Reply, cost: float | None
) -> tuple[TurnRecord, EpisodeState]:
    """Play a model's reply, and draw what it sees next."""
    episode = Episode.restore(rules.game, position.snapshot, rules.reward)
    turn, past = _play(rules, episode, position, reply, cost)
    return turn, _position(rules, episode, past)


def play_turns(
    rules: EpisodeConfig, position: EpisodeState, policy: StatePolicy, at_most: int
) -> tuple[list[TurnRecord], EpisodeState]:
    """Let a policy that answers from the state play up to so many turns."""
    episode = Episode.restore(rules.game, position.snapshot, rules.reward)
    turns: list[TurnRecord] = []
    while position.end is None and len(turns) < at_most:
        response = policy.respond(rules.game, episode.state, policy_rng(episode.seed, episode.turn))
        turn, past = _play(rules, episode, position, Reply(response), None)
        turns.append(turn)
        position = _position(rules, episode, past)
    return turns, position


def episode_record(
    rules: EpisodeConfig,
    position: EpisodeState,
    turns: Sequence[TurnRecord],
    *,
    policy: PolicyRecord,
    seed: int,
    index: int,
    started: str,
    attempt: int = 1,
    stage: str | None = None,
    failed: tuple[Status, str] | None = None,
) -> EpisodeRecord:
    """The record of an episode that is not played any further.

    Args:
        rules: By which it was played.
        position: Where it stands.
        turns: What was played.
        policy: Who played.
        seed: This and what follows as in `EpisodeRecord`.
        index: Place among the run's episodes.
        started: When it was begun.
        attempt: How often it was begun or gone on with.
        stage: Stage of the curriculum.
        failed: Status and reason of an episode that is no result.
    """
    game = rules.game
    state = game.from_json(position.snapshot.state)
    status: Status
    status, end = failed or ("ended" if position.terminated else TURN_LIMIT, position.end or "")
    return EpisodeRecord(
        versions=versions(),
        game=GameRecord.of(game),
        policy=policy,
        reward=rules.reward,
        history=rules.history,
        history_images=rules.history_images,
        max_turns=rules.max_turns,
        seed=seed,
        index=index,
        attempt=attempt,
        stage=stage,
        started=started,
        turns=tuple(turns),
        final_state=game.to_data(state),
        status=status,
        end=end,
        score=None if failed else position.snapshot.score,
        metrics=dict(game.metrics(state, [turn.info for turn in turns])),
    )


def state_after_limit(rules: EpisodeConfig, position: EpisodeState) -> EpisodeState:
    """What the policy would be shown where the limit of turns ended the episode, if there were one turn more."""
    episode = Episode.restore(rules.game, position.snapshot, rules.reward)
    return _position(replace(rules, max_turns=rules.max_turns + 1), episode, position.past)


def without_images(position: EpisodeState) -> EpisodeState:
    """The position as it travels back to a worker, which does not need the images again."""
    return replace(position, images=[])


def storable(text: str) -> str:
    """The text itself; only halves of surrogate pairs, which no UTF-8 file can hold, are written as `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _position(rules: EpisodeConfig, episode: Episode[Any, Any], past: tuple[PastTurn[Any], ...]) -> EpisodeState:
    ended = episode.ended
    end = TURN_LIMIT if ended is None and episode.turn >= rules.max_turns else ended
    images: list[Any] = []
    prompt = ""
    if end is None:
        prompt = turn_prompt(rules.game, episode.state, episode.feedback, past, rules.history_images)
        if rules.look is not None:
            images = [*map(rules.look, turn_images(rules.game, episode.state, past, rules.history_images))]
    return EpisodeState(episode.snapshot(), past, end, ended is not None, images, prompt)


def _play(
    rules: EpisodeConfig,
    episode: Episode[Any, Any],
    position: EpisodeState,
    reply: Reply,
    cost: float | None,
) -> tuple[TurnRecord, tuple[PastTurn[Any], ...]]:
    """Play a reply: the record of the turn, and the turns that the next prompt repeats."""
    before = episode.state
    response = storable(reply.text)
    scored = episode.respond(response)
    seen = scored.perception
    turn = TurnRecord(
        turn=episode.turn,
        state=episode.game.to_data(before),
        prompt=position.prompt,
        response=response,
        outcome=scored.outcome,
        action=list(scored.action) if isinstance(scored.action, tuple) else scored.action,
        feedback=scored.feedback,
        reward=RewardRecord(
            total=scored.total,
            game=scored.game,
            format=scored.format,
            perception=None if seen is None else seen.partial,
            perception_exact=None if seen is None else seen.exact,
        ),
        info=dict(scored.info),
        latency=reply.latency,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cost=cost,
        finish_reason=reply.finish_reason and storable(reply.finish_reason),
        reasoning=reply.reasoning and storable(reply.reasoning),
        requests=reply.requests,
        model=reply.model and storable(reply.model),
    )
    if not rules.history:
        return turn, ()
    latest = PastTurn(before, turn.turn, response, scored.outcome, scored.game, scored.feedback)
    return turn, (*position.past, latest)[-rules.history :]
