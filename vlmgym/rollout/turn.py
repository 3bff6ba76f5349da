"""The turn engine: start episodes, play turns, make records. Runs in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from vlmgym.errors import EpisodeError, GameError, PolicyError, UsageError, VlmgymError, short_repr
from vlmgym.policies.base import REPLY_DETAILS, Prompt, Reply, StatePolicy, policy_rng, recorded_reply
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.runs.record import (
    METRICS,
    EpisodeRecord,
    GameRecord,
    PolicyRecord,
    RewardRecord,
    StatementsRecord,
    Status,
    TurnRecord,
    versions,
)
from vlmgym.sandbox.core.episode import GAME_FAULTS, Episode, Snapshot, game_errors
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.prompt import Message, PastTurn, PromptConfig, blank, turn_messages
from vlmgym.sandbox.core.reward import Scored, step_infos

TURN_LIMIT: Literal["turn limit"] = "turn limit"

Transform = Callable[[ImageArray], Any]


@dataclass(frozen=True)
class GameSetup:
    """A game, and how its episodes are played.

    Attributes:
        game: The game.
        settings: Settings of its episodes.
        transform: Applied to each image before the policy gets it; if None, no images are drawn.
        prompts: Contents of prompts; fields that `settings` leaves open are what the game needs.
    """

    game: Game[Any, Any]
    settings: EpisodeSettings = EpisodeSettings()  # noqa: RUF009 - frozen
    transform: Transform | None = None
    prompts: PromptConfig = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompts", self.settings.of(self.game.history))


class Observation(NamedTuple):
    """Input of the policy before a turn.

    Attributes:
        images: Transformed images; empty without a transform and after the end.
        messages: Messages of the prompt; empty after the end.
        end: Why the episode has ended, or None.
        status: How it has ended: by the game, at the turn limit, or with an error of the game; None if it has not.
    """

    images: list[Any]
    messages: tuple[Message, ...] = ()
    end: str | None = None
    status: Status | None = None

    @property
    def prompt(self) -> str:
        """Text of the turn; empty after the end."""
        return self.messages[-1].text if self.messages else ""

    @property
    def system(self) -> str | None:
        """System prompt of a chat, else None."""
        return next((message.text for message in self.messages if message.role == "system"), None)


class EpisodeState(NamedTuple):
    """An episode between two turns, as a value that can be sent to another process.

    Attributes:
        snapshot: State, random generator and outcome counts.
        past: Earlier turns repeated in the prompt.
        observation: Observation of the next turn.
        live: The episode itself, which playing the turn changes; None in a process that has not played it.
    """

    snapshot: Snapshot
    past: tuple[PastTurn[Any], ...]
    observation: Observation
    live: LiveEpisode | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EpisodeState, self[:3]

    def prompt(self, game: Game[Any, Any]) -> Prompt:
        """Return what a `ModelPolicy` gets."""
        observation, snapshot = self.observation, self.snapshot
        messages, images = observation.messages, observation.images
        return Prompt(messages[-1].text, game, snapshot.seed, snapshot.turn, snapshot, images, messages)

    def to_play(self) -> EpisodeState:
        """Return a copy for the worker that plays the turn: without images and earlier turns' messages."""
        *earlier, last = self.observation.messages
        messages = (*(message for message in earlier if message.role == "system"), last)
        return self._replace(observation=self.observation._replace(images=[], messages=messages))

    def with_past_images(self, prompts: PromptConfig, before: Sequence[Any]) -> EpisodeState:
        """Return a copy with the images of earlier turns, taken from those of the turn `before`."""
        images = prompts.shown_images(before, self.observation.images, self.observation.messages)
        return self._replace(observation=self.observation._replace(images=images))

    def failed(self, error: EpisodeError) -> EpisodeState:
        """Return a copy that an error has ended."""
        return self._replace(observation=Observation([], end=str(error), status="error"))


class LiveEpisode:
    """An episode that is played in this process; see `EpisodeState` for its `past` and `observation`.

    Attributes:
        turns: Records of the turns taken with `respond`.
    """

    def __init__(
        self,
        setup: GameSetup,
        start: int | Snapshot | None,
        past: tuple[PastTurn[Any], ...] = (),
        observation: Observation | None = None,
    ) -> None:
        """Start an episode with a seed, random if None, or continue from a snapshot with its `past` turns."""
        self.setup, self.past = setup, past
        self.episode: Episode[Any, Any] = (
            Episode.restore(setup.game, start, setup.settings.reward)
            if isinstance(start, Snapshot)
            else Episode(setup.game, start, setup.settings.reward)
        )
        self.turns: list[TurnRecord] = []
        self.observation = self._observe(setup.settings.max_turns) if observation is None else observation

    @property
    def done(self) -> bool:
        """True once the episode has terminated or been truncated."""
        return self.observation.end is not None

    @property
    def truncated(self) -> bool:
        """True if the turn limit, not the game, ended the episode."""
        return self.observation.status == TURN_LIMIT

    def state(self) -> EpisodeState:
        """Snapshot the episode; raise `GameError` if the game cannot write its state."""
        try:
            return EpisodeState(self.episode.snapshot(), self.past, self.observation, self)
        except GAME_FAULTS:
            with self.episode.game_errors():
                raise

    def respond(self, reply: Reply, cost: float | None = None) -> TurnRecord:
        """Take a turn with a reply, and return the turn's record.

        Raises:
            EpisodeEnded: The episode has ended.
            GameError: The game failed. If it only failed to show the next state, `turns` includes this turn.
        """
        before, observation = self.episode.state, self.observation
        number = self.episode.turn + 1
        try:
            scored = self.episode.respond(reply.text)
            perception, prediction = scored.perception, scored.prediction
            turn = TurnRecord(
                turn=number,
                state=self.setup.game.to_record(before),
                system=observation.system,
                prompt=observation.prompt,
                response=reply.text,
                outcome=scored.outcome,
                action=_as_json(scored.action),
                feedback=scored.feedback,
                reward=RewardRecord(
                    total=scored.total,
                    game=scored.game,
                    format=scored.format,
                    perception=None if perception is None else perception.partial,
                    perception_exact=None if perception is None else perception.exact,
                    prediction=None if prediction is None else prediction.partial,
                    prediction_exact=None if prediction is None else prediction.exact,
                    actions=scored.rewards,
                ),
                info=dict(scored.info),
                statements=_statements_record(self.setup.game, before, reply, scored),
                cost=cost,
                **{name: getattr(reply, name) for name in REPLY_DETAILS},
            )
        except GAME_FAULTS:  # a context manager would cost more in every turn
            with game_errors(self.setup.game.id, self.episode.seed, number):
                raise
        self.turns.append(turn)
        self._advance(before, reply.text, scored)
        return turn

    def step(self, response: str) -> Scored[Any, Any]:
        """Take a turn with a response, without recording it; raises the same errors as `respond`."""
        before = self.episode.state
        scored = self.episode.respond(response)
        self._advance(before, response, scored)
        return scored

    def _advance(self, before: Any, response: str, scored: Scored[Any, Any]) -> None:
        prompt = self.observation.prompt if self.setup.prompts.chat else ""
        latest = PastTurn(before, self.episode.turn, response, scored.outcome, scored.game, scored.feedback, prompt)
        self.past = tuple(self.setup.prompts.window((*self.past, latest)))
        self.observation = self._observe(self.setup.settings.max_turns, self.observation.images)

    def images(self) -> list[ImageArray]:
        """Render the images of the turn, oldest first, or what the control experiment shows instead."""
        return self._render(self.past)

    def _render(self, past: Sequence[PastTurn[Any]] | None) -> list[ImageArray]:
        """Render the goal and the states of past turns that the prompt shows, unless `past` is None, and the state."""
        game, prompts = self.setup.game, self.setup.prompts
        states = prompts.shown_states([turn.state for turn in past or ()], self.episode.state)
        if prompts.images in ("stale", "shuffled"):
            seed = self.episode.seed + (prompts.images == "shuffled")
            states = [Episode(game, seed).state] * len(states)
        images = [image for state in states for image in prompts.draw(game, state, self.episode.seed)]
        if prompts.images == "swapped":
            images.reverse()
        if prompts.goal_image and past is not None:
            images = [*prompts.draw(game, game.goal(states[-1]), self.episode.seed), *images]
        return [*map(blank, images)] if prompts.images == "blank" else images

    def observation_after_limit(self) -> Observation:
        """Return the observation of one more turn, for an episode that the turn limit ended."""
        return self._observe(self.setup.settings.max_turns + 1)

    def _observe(self, max_turns: int, before: Sequence[Any] | None = None) -> Observation:
        """Observe the turn; `before` has the images of the turn before, so that only the current state is rendered."""
        setup, episode = self.setup, self.episode
        try:
            if (end := episode.ended) is not None:
                if not isinstance(end, str):
                    raise VlmgymError(f"ended must return a reason as text or None, got {short_repr(end)}")
                return Observation([], end=end, status="ended")
            if episode.turn >= max_turns:
                return Observation([], end=TURN_LIMIT, status=TURN_LIMIT)
            messages = turn_messages(
                setup.game, episode.state, episode.turn + 1, episode.feedback, self.past, setup.prompts
            )
            if setup.transform is None:
                return Observation([], messages)
            images = [*map(setup.transform, self._render(self.past if before is None else None))]
            return Observation(setup.prompts.shown_images(before or (), images, messages), messages)
        except GAME_FAULTS:
            with episode.game_errors():
                raise


def _statements_record(
    game: Game[Any, Any], state: Any, reply: Reply, scored: Scored[Any, Any]
) -> StatementsRecord | None:
    """Record the statements of a reply: in its thoughts, or if there are none, in the reasoning returned separately."""
    if type(game).check_reasoning is Game.check_reasoning and game.statements is None:
        return None
    checks: Sequence[bool] = scored.statements
    if not checks and reply.reasoning:
        checks = game.check_reasoning(state, reply.reasoning)
    first_false = checks.index(False) + 1 if False in checks else None
    return StatementsRecord(checked=len(checks), true=sum(checks), first_false=first_false)


def _as_json(action: Any) -> Any:
    """Convert an action, or the actions of a response, to lists."""
    return [*map(_as_json, action)] if isinstance(action, tuple) else action


def resume_episode(setup: GameSetup, seed: int, turns: Sequence[TurnRecord]) -> tuple[list[TurnRecord], EpisodeState]:
    """Replay the turns of an unfinished episode; return the turns and the state after the last one.

    If the replay differs from the record (for instance in another version of the game), the episode starts over:
    returns no turns and the initial state.

    Raises:
        GameError: The game cannot start with this seed, or fails in an earlier turn than before.
    """
    try:
        live = LiveEpisode(replace(setup, transform=None), seed)
    except UsageError as error:  # for instance a bad row of the user's data
        raise GameError(f"{setup.game.id}, seed {seed}: {error}") from error
    for turn in turns:
        replayed_turn = live.respond(recorded_reply(turn), turn.cost)
        if replayed_turn.model_dump(mode="json") != turn.model_dump(mode="json"):
            return [], LiveEpisode(setup, seed).state()
    state = live.state()
    try:
        live.setup = setup
        live.observation = live._observe(setup.settings.max_turns)
        return live.turns, live.state()
    except GameError as error:
        return live.turns, state.failed(error)


def _continue(setup: GameSetup, state: EpisodeState) -> LiveEpisode:
    """Continue an episode of this run; raise `GameError` if the game rejects the state that it has written."""
    if state.live is not None:  # restoring it would take 8% of a cheap turn
        state.live.turns = []
        return state.live
    snapshot = state.snapshot
    with game_errors(setup.game.id, snapshot.seed, snapshot.turn + 1):
        return LiveEpisode(setup, snapshot, state.past, state.observation)


def play_reply(
    setup: GameSetup, state: EpisodeState, reply: Reply, cost: float | None
) -> tuple[list[TurnRecord], EpisodeState]:
    """Take a turn with a model's reply; return the turn's record, if the game took it, and the state after it."""
    live = _continue(setup, state)
    return _play(live, state, lambda: live.respond(reply, cost))


def play_turns(
    setup: GameSetup, state: EpisodeState, policy: StatePolicy, limit: int
) -> tuple[list[TurnRecord], EpisodeState]:
    """Play up to `limit` turns with a state policy; return their records and the state after the last one."""
    live = _continue(setup, state)
    episode = live.episode

    def play() -> None:
        try:
            while not live.done and len(live.turns) < limit:
                text = policy.respond(setup.game, episode.state, policy_rng(episode.seed, episode.turn))
                live.respond(Reply(text))
        except GAME_FAULTS:
            with episode.game_errors(PolicyError):
                raise

    return _play(live, state, play)


def _play(live: LiveEpisode, state: EpisodeState, play: Callable[[], object]) -> tuple[list[TurnRecord], EpisodeState]:
    """Play turns from a state; an error of the game or the policy ends the episode in the state that it has reached."""
    try:
        play()
        return live.turns, live.state()
    except EpisodeError as error:
        return live.turns, (live.state() if live.turns else state).failed(error)


def episode_record(
    setup: GameSetup,
    state: EpisodeState | None,
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
    """Make the record of an episode.

    Args:
        state: The episode after its last turn; None if it could not start.
        failed: Status and reason if the episode has no result.
    """
    game, end, status = setup.game, "", None
    if state is not None:
        end, status = state.observation.end or "", state.observation.status
    if failed is not None:
        status, end = failed
    final_state, metrics = None, dict[str, float | str]()
    try:
        with game_errors(game.id, seed, None):
            if state is not None:
                final = game.from_json(state.snapshot.state)
                final_state = game.to_data(final)
                metrics = METRICS.validate_python(
                    dict(game.metrics(final, step_infos(game, [turn.info for turn in turns])))
                )
    except GameError as error:
        status, end = ("error", str(error)) if status in ("ended", TURN_LIMIT) else (status, end)
    assert status is not None
    return EpisodeRecord(
        versions=versions(),
        game=GameRecord.of(game),
        policy=policy,
        reward=setup.settings.reward,
        prompts=setup.prompts,
        max_turns=setup.settings.max_turns,
        seed=seed,
        index=index,
        attempt=attempt,
        stage=stage,
        started=started,
        turns=tuple(turns),
        final_state=final_state,
        status=status,
        end_reason=end,
        score=state.snapshot.score if state is not None and status in ("ended", TURN_LIMIT) else None,
        metrics=metrics,
    )
