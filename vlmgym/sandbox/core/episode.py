"""A running episode: position, chance, turn and counts, which can be copied, stored and gone on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt

from vlmgym.checks import as_int, check_instance, check_int
from vlmgym.errors import StateError
from vlmgym.sandbox.core.game import ActionT, Game, StateT
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored, score_action, score_response


class Snapshot(BaseModel):
    """An episode as a JSON-serialisable value.

    Attributes:
        game: The game's `fingerprint`, so that no other game or configuration goes on from it.
        seed: The seed the episode was started with.
        state: The position, by the game's `to_json`.
        rng: State of the bit generator (PCG64), as NumPy gives it.
        turn: Turns taken so far, also illegal and unparsable ones.
        score: Sum of the game's own rewards.
        outcomes: How many turns had which outcome.
        feedback: Why the last turn was not played, or empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    game: str
    seed: int = Field(ge=0)
    state: str
    rng: dict[str, Any]
    turn: int = Field(ge=0)
    score: FiniteFloat
    outcomes: dict[Outcome, NonNegativeInt]
    feedback: str


class Episode(Generic[StateT, ActionT]):
    """One episode of a game. It never resets itself: once ended, every further move raises `EpisodeEnded`."""

    def __init__(
        self,
        game: Game[StateT, ActionT],
        seed: int | None = None,
        reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Start an episode.

        Args:
            game: The game.
            seed: Decides the episode's chance, as in `gymnasium.Env.reset(seed=...)`; None: taken from the system.
            reward: Weights and shaping.
            rng: Use this generator instead of making one from the seed.

        Raises:
            UsageError: The game is not a `Game`, or the seed is not an integer of at least 0.
        """
        check_instance("game", game, Game)
        seed = as_int(seed)
        check_int("seed", seed, 0, optional=True)
        self.game = game
        self.reward = reward
        self.seed = int(np.random.SeedSequence().entropy) % 2**63 if seed is None else seed  # type: ignore[arg-type]
        self.rng = np.random.default_rng(self.seed) if rng is None else rng
        self.state: StateT = game.start_at(self.seed, self.rng)
        self.turn = 0
        self.score = 0.0
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.feedback = ""

    @property
    def ended(self) -> str | None:
        """Why the episode has ended, or None while it goes on."""
        return self.game.ended(self.state)

    def respond(self, response: str) -> Scored[StateT, ActionT]:
        """Take a turn with a model's response.

        Raises:
            UsageError: The response is not a string.
            EpisodeEnded: The episode has ended.
        """
        check_instance("response", response, str)
        return self._record(score_response(self.game, self.state, response, self.rng, self.reward))

    def act(self, action: ActionT) -> Scored[StateT, ActionT]:
        """Take a turn with a native action.

        Raises:
            EpisodeEnded: The episode has ended.
        """
        return self._record(score_action(self.game, self.state, action, self.rng, self.reward))

    def _record(self, scored: Scored[StateT, ActionT]) -> Scored[StateT, ActionT]:
        self.state = scored.next_state
        self.turn += 1
        self.score += scored.game
        self.outcomes[scored.outcome] += 1
        self.feedback = scored.feedback
        return scored

    def snapshot(self) -> Snapshot:
        """The episode as a value; it goes on from there exactly as this one will."""
        return Snapshot(
            game=self.game.fingerprint,
            seed=self.seed,
            state=self.game.to_json(self.state),
            rng=_plain(self.rng.bit_generator.state),
            turn=self.turn,
            score=self.score,
            outcomes=dict(self.outcomes),
            feedback=self.feedback,
        )

    @classmethod
    def restore(
        cls,
        game: Game[StateT, ActionT],
        snapshot: Snapshot,
        reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
        *,
        rng: np.random.Generator | None = None,
    ) -> Episode[StateT, ActionT]:
        """Go on from a snapshot, with its own chance, or with `rng` for a branch with other chance.

        Raises:
            UsageError: The snapshot is not a `Snapshot`.
            StateError: The snapshot is not one of this game with this configuration.
        """
        check_instance("snapshot", snapshot, Snapshot)
        if snapshot.game != game.fingerprint:
            raise StateError(f"the snapshot is of another game or configuration than {game!r}")
        episode = cls.__new__(cls)
        episode.game = game
        episode.reward = reward
        episode.seed = snapshot.seed
        if rng is None:
            rng = _generator(snapshot.rng)
        episode.rng = rng
        episode.state = game.from_json(snapshot.state)
        episode.turn = snapshot.turn
        episode.score = snapshot.score
        episode.outcomes = {outcome: snapshot.outcomes.get(outcome, 0) for outcome in Outcome}
        episode.feedback = snapshot.feedback
        return episode


_ANY_SEED = np.random.SeedSequence(0)
"""To make a generator from a number takes twice as long."""


def _generator(state: dict[str, Any]) -> np.random.Generator:
    """A generator in a state of `Snapshot.rng`."""
    rng = np.random.Generator(np.random.PCG64(_ANY_SEED))
    try:
        rng.bit_generator.state = state
    except (LookupError, TypeError, ValueError, OverflowError):
        raise StateError("the snapshot's rng is not the state of a PCG64 generator") from None
    return rng


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """NumPy gives nested dicts of ints; copy them so that the snapshot does not share them."""
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in state.items()}
