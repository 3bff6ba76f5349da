"""Where episodes are played between two calls of the model: rules, images and tokens, which need no GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from training.core.seats import Seat, take_seats
from training.core.split import FIRST_HELD_OUT
from training.easyr1.section import Section
from vlmgym.curriculum import Pick, Progress
from vlmgym.policies.base import Reply, identity
from vlmgym.records.episode import PolicyRecord, TurnRecord
from vlmgym.rollout.turn import EpisodeConfig, EpisodeState, start

Place = tuple[int, int]
"""Row and copy: which episode."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt that waits for an answer.

    Attributes:
        row: Number of the row.
        copy: Which of its episodes asks; None: all of them, which begin at one position.
        features: Of `PromptEncoder.encode`.
    """

    row: int
    copy: int | None
    features: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a reply.

    Attributes:
        row: Number of the row.
        copy: Which of its episodes.
        turn: The record of the turn.
        anchor: The position that was answered, as a text.
        next: What is asked next; None: the episode is over.
    """

    row: int
    copy: int
    turn: TurnRecord
    anchor: str
    next: Asked | None


@dataclass(frozen=True, slots=True)
class Finished:
    """An episode that is over.

    Attributes:
        row: Number of the row.
        copy: Which of its episodes.
        entry: Of the curriculum.
        stage: Its stage.
        game: Id of the game.
        score: Sum of the game's own rewards.
        success: As the curriculum measures it.
        turns: How many.
        ended: Whether the game itself ended.
        record: The episode's record as JSON.
    """

    row: int
    copy: int
    entry: int
    stage: str | None
    game: str
    score: float
    success: float
    turns: int
    ended: bool
    record: str


class Table:
    """Plays the episodes of some rows."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Make the games.

        Args:
            section: What is played.
            encoder: A `PromptEncoder`.
            seed: Of the training run.
            model: What records call the model.
        """
        self.section, self.encoder, self.seed = section, encoder, seed
        self.curriculum = section.make_curriculum()
        self.policy = PolicyRecord(name="easyr1", options={"model": model})
        self.seats: dict[Place, Seat] = {}

    def sit(self, rows: Sequence[int], copies: int, progress: Progress) -> list[Asked]:
        """Begin the episodes of some rows, those of a row at one position, with the same chance."""
        section = self.section
        seats = take_seats(
            self.curriculum, progress, self.seed, rows, copies, section.play, section.states, section.reward
        )
        return self._begin(seats)

    def sit_held_out(self, rows: Sequence[int]) -> list[Asked]:
        """Begin episodes of validation: row i is the i-th of all games' episodes, game by game."""
        section, seats = self.section, []
        for row in rows:
            entry, number = divmod(row, section.validation.episodes)
            stage = self.curriculum.entries[entry].stages[-1]
            play = section.play
            rules = EpisodeConfig(
                stage.game, section.reward, section.validation.turns, play.history, play.history_images, identity
            )
            position = start(rules, FIRST_HELD_OUT + number)
            seats.append(Seat(Pick(entry, stage.game, stage.name), rules, row, 0, position))
        return self._begin(seats)

    def play(self, replies: Sequence[tuple[Place, Reply]]) -> list[Played]:
        """Play replies, each in its episode."""
        return [self._play(place, reply) for place, reply in replies]

    def beyond(self) -> list[tuple[Place, Asked]]:
        """What would be asked next in the episodes that the limit of turns cut off."""
        cut = [(place, seat) for place, seat in self.seats.items() if seat.truncated]
        return [(place, self._ask(seat, seat.copy, seat.beyond())) for place, seat in cut]

    def leave(self, copies: int | None) -> list[Finished]:
        """End all episodes.

        Args:
            copies: Of each row, from which the seeds in the records follow; None: they are held-out episodes, which
                have seeds of their own.
        """
        finished = []
        for (row, copy), seat in self.seats.items():
            record = seat.record(self.policy, copies or 1)
            if copies is None:
                record = record.model_copy(update={"seed": seat.position.snapshot.seed})
            finished.append(
                Finished(
                    row,
                    copy,
                    seat.pick.entry,
                    seat.pick.stage,
                    record.game.id,
                    record.score or 0.0,
                    self.curriculum.success(seat.pick, seat.turns),
                    len(seat.turns),
                    record.terminated,
                    record.model_dump_json(),
                )
            )
        self.seats = {}
        return finished

    def _begin(self, seats: Iterable[Seat]) -> list[Asked]:
        asked: dict[int, Asked] = {}
        for seat in seats:
            self.seats[seat.row, seat.copy] = seat
            if seat.row not in asked:
                asked[seat.row] = self._ask(seat, None, seat.position)
        return list(asked.values())

    def _ask(self, seat: Seat, copy: int | None, position: EpisodeState) -> Asked:
        return Asked(seat.row, copy, self.encoder.encode(position.prompt, position.images))

    def _play(self, place: Place, reply: Reply) -> Played:
        seat = self.seats[place]
        turn = seat.respond(reply)
        anchor = json.dumps(turn.state, sort_keys=True)
        return Played(*place, turn, anchor, None if seat.over else self._ask(seat, seat.copy, seat.position))
