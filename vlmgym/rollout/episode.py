"""An episode driven one reply at a time, as trainers do between two batches of generation."""

from __future__ import annotations

from dataclasses import dataclass, field

from vlmgym.curriculum import Pick
from vlmgym.policies.base import Reply
from vlmgym.records.episode import EpisodeRecord, PolicyRecord, TurnRecord, now
from vlmgym.rollout.turn import LiveEpisode, Observation, episode_record


@dataclass
class EpisodeRollout:
    """An episode driven one reply at a time.

    Attributes:
        prompt_id: Index of the initial state in the training run; all samples of a group share it.
        sample_idx: Index of this sample within its group.
    """

    pick: Pick
    live: LiveEpisode
    prompt_id: int
    sample_idx: int
    turns: list[TurnRecord] = field(default_factory=list)
    started: str = field(default_factory=now)

    @property
    def observation(self) -> Observation:
        """Images and prompt of the next turn."""
        return self.live.observation

    @property
    def done(self) -> bool:
        """True once the episode has terminated or been truncated."""
        return self.observation.end is not None

    @property
    def truncated(self) -> bool:
        """True if the turn limit ended the episode, not the game."""
        return self.done and not self.observation.terminated

    def bootstrap_observation(self) -> Observation:
        """Return the images and prompt that the next turn of a truncated episode would have had."""
        return self.live.observation_after_limit()

    def respond(self, reply: Reply) -> TurnRecord:
        """Play a reply and return the record of the turn."""
        turn = self.live.respond(reply)
        self.turns.append(turn)
        return turn

    def record(self, policy: PolicyRecord, *, seed: int, index: int) -> EpisodeRecord:
        """Return the record of the episode in the evaluator's format."""
        return episode_record(
            self.live.config,
            self.live.state(),
            self.turns,
            policy=policy,
            seed=seed,
            index=index,
            started=self.started,
            stage=self.pick.stage,
        )
