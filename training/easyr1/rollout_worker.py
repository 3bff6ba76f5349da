"""Rollout workers: play episodes, render images and tokenize prompts on CPUs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from training.core.states import FIRST_VALIDATION_SEED, start_rollouts
from training.easyr1.section import Section
from vlmgym.curriculum import Pick, Progress
from vlmgym.policies.base import Reply, identity
from vlmgym.records.episode import PolicyRecord, TurnRecord
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.rollout.turn import EpisodeConfig, LiveEpisode, Observation

Place = tuple[int, int]
"""Row and copy that identify an episode."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that needs a response.

    Attributes:
        row: Row number.
        copy: Index within the group; None: all episodes of the group, which share the prompt.
        features: Result of `PromptEncoder.encode`.
    """

    row: int
    copy: int | None
    features: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one turn.

    Attributes:
        row: Row number.
        copy: Index within the group.
        turn: Record of the turn.
        anchor: The state before the turn, as text.
        next: Next request; None: the episode is over.
    """

    row: int
    copy: int
    turn: TurnRecord
    anchor: str
    next: Request | None


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """A finished episode.

    Attributes:
        row: Row number.
        copy: Index within the group.
        entry: Index of the curriculum entry.
        stage: Stage name.
        game: Game id.
        score: Sum of unshaped rewards.
        success: Success as defined by the curriculum.
        turns: Number of turns.
        ended: True if the game ended, False if truncated.
        record: Record of the episode as JSON.
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


class RolloutWorker:
    """Plays the episodes of some rows."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Create the games.

        Args:
            section: Section `vlmgym` of the configuration.
            encoder: Prompt encoder.
            seed: Seed of the training run.
            model: Model name in records.
        """
        self.section, self.encoder, self.seed = section, encoder, seed
        self.curriculum = section.make_curriculum()
        self.policy = PolicyRecord(name="easyr1", options={"model": model})
        self.episodes: dict[Place, EpisodeRollout] = {}

    def start(self, rows: Sequence[int], copies: int, progress: Progress) -> list[Request]:
        """Start groups of episodes; a group shares its initial state and random generator."""
        section = self.section
        episodes = start_rollouts(
            self.curriculum, progress, self.seed, rows, copies, section.play, section.states, section.reward
        )
        return self._begin(episodes)

    def start_validation(self, rows: Sequence[int]) -> list[Request]:
        """Start validation episodes; rows count through the episodes game by game."""
        section, episodes = self.section, []
        for row in rows:
            entry, number = divmod(row, section.validation.episodes)
            stage = self.curriculum.entries[entry].stages[-1]
            play = section.play
            config = EpisodeConfig(
                stage.game, section.reward, section.validation.turns, play.history, play.history_images, identity
            )
            live = LiveEpisode.start(config, FIRST_VALIDATION_SEED + number)
            episodes.append(EpisodeRollout(Pick(entry, stage.game, stage.name), live, row, 0))
        return self._begin(episodes)

    def play(self, replies: Sequence[tuple[Place, Reply]]) -> list[StepResult]:
        """Play a reply in each episode."""
        return [self._play(place, reply) for place, reply in replies]

    def bootstrap_requests(self) -> list[tuple[Place, Request]]:
        """Return the next requests of truncated episodes."""
        cut = [(place, episode) for place, episode in self.episodes.items() if episode.truncated]
        return [
            (place, self._ask(episode, episode.sample_idx, episode.bootstrap_observation())) for place, episode in cut
        ]

    def finish(self, copies: int | None) -> list[EpisodeResult]:
        """Finish all episodes and return their results.

        Args:
            copies: Group size, which determines the seeds in records; None: validation episodes, which have their
                own seeds.
        """
        finished = []
        for (row, copy), episode in self.episodes.items():
            index = row * (copies or 1) + copy
            seed = episode.live.episode.seed if copies is None else index
            record = episode.record(self.policy, seed=seed, index=index)
            finished.append(
                EpisodeResult(
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

    def _begin(self, episodes: Iterable[EpisodeRollout]) -> list[Request]:
        asked: dict[int, Request] = {}
        for episode in episodes:
            self.episodes[episode.prompt_id, episode.sample_idx] = episode
            if episode.prompt_id not in asked:
                asked[episode.prompt_id] = self._ask(episode, None, episode.observation)
        return list(asked.values())

    def _ask(self, episode: EpisodeRollout, copy: int | None, position: Observation) -> Request:
        return Request(episode.prompt_id, copy, self.encoder.encode(position.prompt, position.images))

    def _play(self, place: Place, reply: Reply) -> StepResult:
        episode = self.episodes[place]
        turn = episode.respond(reply)
        anchor = json.dumps(turn.state, sort_keys=True)
        return StepResult(
            *place, turn, anchor, None if episode.done else self._ask(episode, episode.sample_idx, episode.observation)
        )
