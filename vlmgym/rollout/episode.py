"""An episode that a trainer advances by one reply after each generation batch."""

from __future__ import annotations

from vlmgym.curriculum import Pick
from vlmgym.errors import EpisodeError
from vlmgym.rollout.turn import EpisodeConfig, LiveEpisode, Observation, episode_record
from vlmgym.runs.record import EpisodeRecord, PolicyRecord, now
from vlmgym.sandbox.core.episode import Snapshot


class EpisodeRollout(LiveEpisode):
    """An episode of a training run.

    Attributes:
        pick: Entry and stage of the episode in the curriculum.
        prompt_id: Index of the initial state in the training run; all samples of a group share it.
        sample_idx: Index of this sample within its group.
    """

    def __init__(
        self,
        pick: Pick,
        prompt_id: int,
        sample_idx: int,
        config: EpisodeConfig,
        start: int | Snapshot,
        observation: Observation | None = None,
    ) -> None:
        super().__init__(config, start, observation=observation)
        self.pick, self.prompt_id, self.sample_idx = pick, prompt_id, sample_idx
        self._started = now()

    @property
    def failed(self) -> bool:
        """True if an error has ended the episode, which then has no score."""
        return self.observation.status == "error"

    def fail(self, error: EpisodeError) -> None:
        """End the episode with an error."""
        self.observation = Observation([], end=str(error), status="error")

    def record(self, policy: PolicyRecord, *, seed: int, index: int) -> EpisodeRecord:
        """Return the record of the episode in the evaluator's format."""
        return episode_record(
            self.config,
            self.state(),
            self.turns,
            policy=policy,
            seed=seed,
            index=index,
            started=self._started,
            stage=self.pick.stage,
        )
