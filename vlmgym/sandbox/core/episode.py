"""Running episodes, and snapshots to restore them from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt

from vlmgym.checks import check_instance, to_int
from vlmgym.errors import EpisodeEnded, EpisodeError, GameError, StateError, UsageError, VlmgymError, describe_exception
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.game import Game, StateT
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored, score_action, score_response


class Snapshot(BaseModel):
    """A JSON-serialisable snapshot of an episode."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    game: str
    """Fingerprint of the game and its config; restoring into any other raises `StateError`."""
    seed: int = Field(ge=0)
    state: str
    """State of the game, written by its `to_json`."""
    rng: dict[str, Any]
    """State of NumPy's PCG64 bit generator."""
    turn: int = Field(ge=0)
    """Number of turns taken, including illegal and unparsable ones."""
    score: FiniteFloat
    """Sum of the game's own rewards."""
    outcomes: dict[Outcome, NonNegativeInt]
    feedback: str
    """Why the last turn was invalid, or empty."""


GAME_FAULTS = (Exception, SystemExit)
"""Exceptions of a game's code that end its episode; a `sys.exit()` in a game must not end the run."""


@contextmanager
def game_errors(game_id: str, seed: int, turn: int | None, *passed: type[Exception]) -> Iterator[None]:
    """Convert exceptions of a game's code, except `passed` ones, to a `GameError`; `turn` is None outside of a turn."""
    try:
        yield
    except GAME_FAULTS as error:
        if isinstance(error, (EpisodeError, EpisodeEnded, *passed)):
            raise
        location = f"{game_id}, seed {seed}" if turn is None else f"{game_id}, seed {seed}, turn {turn}"
        reason = str(error) if isinstance(error, VlmgymError) else describe_exception(error)
        raise GameError(f"{location}: {reason}") from error


class Episode(Generic[StateT, ActionT]):
    """A running episode: state, random generator, turn and outcome counts.

    It never resets itself: taking a turn after the end raises `EpisodeEnded`. Unexpected exceptions of the game become
    a `GameError`.
    """

    def __init__(
        self,
        game: Game[StateT, ActionT],
        seed: int | None = None,
        reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Start an episode. `seed` is random by default; pass `rng` to replace the generator created from the seed.

        Raises:
            UsageError: An argument is invalid, or the game's data cannot be read.
            GameError: The game cannot start with this seed.
        """
        check_instance("game", game, Game)
        seed = to_int("seed", seed, 0, optional=True)
        self.game = game
        self.reward = reward
        self.seed = int(np.random.SeedSequence().entropy) % 2**63 if seed is None else seed  # type: ignore[arg-type]
        self.rng = np.random.default_rng(self.seed) if rng is None else rng
        with game_errors(game.id, self.seed, None, UsageError):
            self.state: StateT = game.start_at(self.seed, self.rng)
        self.turn = 0
        self.score = 0.0
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.feedback = ""

    @property
    def ended(self) -> str | None:
        """Reason why the episode has ended, or None if it has not."""
        return self.game.ended(self.state)

    def respond(self, response: str) -> Scored[StateT, ActionT]:
        """Take a turn with a model's response; raise `EpisodeEnded` after the end."""
        return self._take_turn(score_response, response)

    def act(self, action: ActionT) -> Scored[StateT, ActionT]:
        """Take a turn with a native action; raise `EpisodeEnded` after the end."""
        return self._take_turn(score_action, action)

    def game_errors(self, *passed: type[Exception]) -> AbstractContextManager[None]:
        """Convert exceptions of the game's code in the next turn, except `passed` ones, to a `GameError`."""
        return game_errors(self.game.id, self.seed, self.turn + 1, *passed)

    def _take_turn(self, score: Callable[..., Scored[StateT, ActionT]], turn: object) -> Scored[StateT, ActionT]:
        try:
            scored = score(self.game, self.state, turn, self.rng, self.reward)
        except GAME_FAULTS:
            with self.game_errors():  # entering it costs too much in every turn
                raise
        self.state = scored.next_state
        self.turn += 1
        self.score += scored.game
        self.outcomes[scored.outcome] += 1
        self.feedback = scored.feedback
        return scored

    def snapshot(self) -> Snapshot:
        """Snapshot the episode. A restored copy continues identically."""
        return Snapshot(
            game=self.game.fingerprint,
            seed=self.seed,
            state=self.game.to_json(self.state),
            rng=dict(self.rng.bit_generator.state),
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
        """Restore from a snapshot of this game and config. Pass `rng` to branch with different randomness."""
        check_instance("snapshot", snapshot, Snapshot)
        if snapshot.game != game.fingerprint:
            raise StateError(f"the snapshot belongs to another game or config than {game!r}")
        episode = cls.__new__(cls)
        episode.game = game
        episode.reward = reward
        episode.seed = snapshot.seed
        episode.rng = _generator(snapshot.rng) if rng is None else rng
        episode.state = game.from_json(snapshot.state)
        episode.turn = snapshot.turn
        episode.score = snapshot.score
        episode.outcomes = {outcome: snapshot.outcomes.get(outcome, 0) for outcome in Outcome}
        episode.feedback = snapshot.feedback
        return episode


_ANY_SEED = np.random.SeedSequence(0)
"""Seed for generators whose state is replaced at once; reused because seeding from an int takes twice as long."""


def _generator(state: dict[str, Any]) -> np.random.Generator:
    """Restore a generator from `Snapshot.rng`."""
    rng = np.random.Generator(np.random.PCG64(_ANY_SEED))
    try:
        rng.bit_generator.state = state
    except (LookupError, TypeError, ValueError, OverflowError):
        raise StateError("the snapshot's rng is not the state of a PCG64 generator") from None
    return rng
