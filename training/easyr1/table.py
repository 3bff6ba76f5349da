"""Where episodes are played between two calls of the model: rules, images and tokens, which need no GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from training.core.rollouts import start_rollouts
from training.core.states import FIRST_VALIDATION_SEED
from training.easyr1.section import Section
from vlmgym.curriculum import Pick, Progress
from vlmgym.policies.base import Reply, identity
from vlmgym.records.episode import PolicyRecord, TurnRecord
from vlmgym.rollout.episode import EpisodeRollout
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
        self.episodes: dict[Place, EpisodeRollout] = {}

    def sit(self, rows: Sequence[int], copies: int, progress: Progress) -> list[Asked]:
        """Begin the episodes of some rows, those of a row at one position, with the same chance."""
        section = self.section
        episodes = start_rollouts(
            self.curriculum, progress, self.seed, rows, copies, section.play, section.states, section.reward
        )
        return self._begin(episodes)

    def sit_held_out(self, rows: Sequence[int]) -> list[Asked]:
        """Begin episodes of validation: row i is the i-th of all games' episodes, game by game."""
        section, episodes = self.section, []
        for row in rows:
            entry, number = divmod(row, section.validation.episodes)
            stage = self.curriculum.entries[entry].stages[-1]
            play = section.play
            rules = EpisodeConfig(
                stage.game, section.reward, section.validation.turns, play.history, play.history_images, identity
            )
            position = start(rules, FIRST_VALIDATION_SEED + number)
            episodes.append(EpisodeRollout(Pick(entry, stage.game, stage.name), rules, row, 0, position))
        return self._begin(episodes)

    def play(self, replies: Sequence[tuple[Place, Reply]]) -> list[Played]:
        """Play replies, each in its episode."""
        return [self._play(place, reply) for place, reply in replies]

    def beyond(self) -> list[tuple[Place, Asked]]:
        """What would be asked next in the episodes that the limit of turns cut off."""
        cut = [(place, episode) for place, episode in self.episodes.items() if episode.truncated]
        return [(place, self._ask(episode, episode.sample_idx, episode.bootstrap_state())) for place, episode in cut]

    def leave(self, copies: int | None) -> list[Finished]:
        """End all episodes.

        Args:
            copies: Of each row, from which the seeds in the records follow; None: they are held-out episodes, which
                have seeds of their own.
        """
        finished = []
        for (row, copy), episode in self.episodes.items():
            index = row * (copies or 1) + copy
            seed = episode.state.snapshot.seed if copies is None else index
            record = episode.record(self.policy, seed=seed, index=index)
            finished.append(
                Finished(
                    row,
                    copy,
                    episode.pick.entry,
                    episode.pick.stage,
                    record.game.id,
                    record.score or 0.0,
                    self.curriculum.success(episode.pick, episode.turns),
                    len(episode.turns),
                    record.terminated,
                    record.model_dump_json(),
                )
            )
        self.episodes = {}
        return finished

    def _begin(self, episodes: Iterable[EpisodeRollout]) -> list[Asked]:
        asked: dict[int, Asked] = {}
        for episode in episodes:
            self.episodes[episode.prompt_id, episode.sample_idx] = episode
            if episode.prompt_id not in asked:
                asked[episode.prompt_id] = self._ask(episode, None, episode.state)
        return list(asked.values())

    def _ask(self, episode: EpisodeRollout, copy: int | None, position: EpisodeState) -> Asked:
        return Asked(episode.prompt_id, copy, self.encoder.encode(position.prompt, position.images))

    def _play(self, place: Place, reply: Reply) -> Played:
        episode = self.episodes[place]
        turn = episode.respond(reply)
        anchor = json.dumps(turn.state, sort_keys=True)
        return Played(
            *place, turn, anchor, None if episode.done else self._ask(episode, episode.sample_idx, episode.state)
        )
