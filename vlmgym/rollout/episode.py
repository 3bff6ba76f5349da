"""An episode driven one reply at a time, as trainers do between two batches of generation."""

from __future__ import annotations

from dataclasses import dataclass, field

from vlmgym.curriculum import Pick
from vlmgym.policies.base import Reply
from vlmgym.records.episode import EpisodeRecord, PolicyRecord, TurnRecord, now
from vlmgym.rollout.turn import EpisodeConfig, EpisodeState, episode_record, respond, state_after_limit


@dataclass
class EpisodeRollout:
    """An episode driven one reply at a time.

    Attributes:
        pick: Game and stage.
        config: Reward, limits and history.
        prompt_id: Index of the initial state in the training run; all samples of a group share it.
        sample_idx: Index of this sample within its group.
        state: Current state.
        turns: Turns played so far.
        started: Time the episode started.
    """

    pick: Pick
    config: EpisodeConfig
    prompt_id: int
    sample_idx: int
    state: EpisodeState
    turns: list[TurnRecord] = field(default_factory=list)
    started: str = field(default_factory=now)

    @property
    def done(self) -> bool:
        """True once the episode has terminated or been truncated."""
        return self.state.end is not None

    @property
    def truncated(self) -> bool:
        """True if the turn limit ended the episode, not the game."""
        return self.done and not self.state.terminated

    def bootstrap_state(self) -> EpisodeState:
        """Return the final state of a truncated episode, with the images and prompt its next turn would have had."""
        return state_after_limit(self.config, self.state)

    def respond(self, reply: Reply) -> TurnRecord:
        """Play a reply and return the record of the turn."""
        turn, self.state = respond(self.config, self.state, reply, None)
        self.turns.append(turn)
        return turn

    def record(self, policy: PolicyRecord, *, seed: int, index: int) -> EpisodeRecord:
        """Return the record of the episode in the evaluator's format."""
        return episode_record(
            self.config,
            self.state,
            self.turns,
            policy=policy,
            seed=seed,
            index=index,
            started=self.started,
            stage=self.pick.stage,
        )
