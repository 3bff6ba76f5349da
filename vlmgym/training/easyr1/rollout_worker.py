"""Rollout workers: play episodes, render images and tokenize prompts on CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vlmgym.curriculum import Pick
from vlmgym.policies.base import Reply, identity
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.rollout.turn import EpisodeConfig, Observation
from vlmgym.runs.record import EpisodeRecord, PolicyRecord, TurnRecord
from vlmgym.training.easyr1.section import Section
from vlmgym.training.states import start_rollouts

EpisodeId = tuple[int, int]
"""Index of the initial state (prompt_id), and index of the episode within its group (sample_idx)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that needs a response, encoded by `PromptEncoder`. If `sample_idx` is None, a whole group shares it."""

    prompt_id: int
    sample_idx: int | None
    features: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one turn, and the next request, which is None if the episode is over."""

    prompt_id: int
    sample_idx: int
    turn: TurnRecord
    next: Request | None


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """A finished episode, with its pick and its success as measured by the curriculum."""

    prompt_id: int
    sample_idx: int
    pick: Pick
    success: float
    record: EpisodeRecord


class RolloutWorker:
    """Plays a share of the episodes."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Create the games; `model` is the name of the model in records."""
        self.section, self.encoder, self.seed = section, encoder, seed
        self.curriculum = section.make_curriculum()
        self.policy = PolicyRecord(name="easyr1", options={"model": model})
        self.episodes: dict[EpisodeId, EpisodeRollout] = {}

    def start(self, picks: Sequence[tuple[int, Pick]], group_size: int) -> list[Request]:
        """Start a group of episodes for each prompt, given as (prompt_id, pick); return one request per group."""
        options = (self.section.play, self.section.states, self.section.reward)
        return self._start(start_rollouts(dict(picks), self.seed, group_size, *options))

    def start_validation(self, prompt_ids: Sequence[int]) -> list[Request]:
        """Start validation episodes and return their requests. Ids count from 0, through one game after another."""
        section, episodes = self.section, []
        for prompt_id in prompt_ids:
            entry, number = divmod(prompt_id, section.validation.episodes)
            stage = self.curriculum.entries[entry].stages[-1]
            max_turns, prompts = section.validation.max_turns, section.play.prompts
            config = EpisodeConfig(stage.game, section.reward, max_turns, prompts, identity)
            pick, seed = Pick(entry, stage.game, stage.name), FIRST_VALIDATION_SEED + number
            episodes.append(EpisodeRollout(pick, prompt_id, 0, config, seed))
        return self._start(episodes)

    def play(self, replies: Sequence[tuple[EpisodeId, Reply]]) -> list[StepResult]:
        """Play a reply in each episode."""
        return [self._play(episode_id, reply) for episode_id, reply in replies]

    def bootstrap_requests(self) -> list[tuple[EpisodeId, Request]]:
        """Return the requests that truncated episodes would have made next."""
        return [
            (episode_id, self._request(episode, episode.sample_idx, episode.observation_after_limit()))
            for episode_id, episode in self.episodes.items()
            if episode.truncated
        ]

    def finish(self, group_size: int | None) -> list[EpisodeResult]:
        """Finish all episodes and return their results.

        In records, the index is prompt_id * group_size + sample_idx. The seed equals the index in training; in
        validation, where `group_size` is None, it is the seed of the episode.
        """
        finished = []
        for episode_id, episode in self.episodes.items():
            index = episode_id[0] * (group_size or 1) + episode_id[1]
            seed = episode.episode.seed if group_size is None else index
            record, pick = episode.record(self.policy, seed=seed, index=index), episode.pick
            success = self.curriculum.success(pick, episode.turns)
            finished.append(EpisodeResult(*episode_id, pick, success, record))
        self.episodes = {}
        return finished

    def _start(self, episodes: Iterable[EpisodeRollout]) -> list[Request]:
        requests: dict[int, Request] = {}
        for episode in episodes:
            self.episodes[episode.prompt_id, episode.sample_idx] = episode
            if episode.prompt_id not in requests:
                requests[episode.prompt_id] = self._request(episode, None, episode.observation)
        return list(requests.values())

    def _request(self, episode: EpisodeRollout, sample_idx: int | None, observation: Observation) -> Request:
        return Request(episode.prompt_id, sample_idx, self.encoder.encode(observation.messages, observation.images))

    def _play(self, episode_id: EpisodeId, reply: Reply) -> StepResult:
        episode = self.episodes[episode_id]
        turn = episode.respond(reply)
        request = None if episode.done else self._request(episode, episode.sample_idx, episode.observation)
        return StepResult(*episode_id, turn, request)
