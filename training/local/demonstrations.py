"""What a cold start learns from: positions, each with a response that a teacher gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from training.core.expert import expert_response
from training.core.rollouts import start_rollouts
from training.core.states import SFT_STREAM, all_actions
from training.local.actor import Sample
from training.local.config import TrainConfig
from training.local.encoding import Encoder
from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply


def check_demonstrations(config: TrainConfig, curriculum: Curriculum) -> None:
    """Refuse a teacher that knows no best answer.

    Raises:
        UsageError: It is greedy, and the actions of a game cannot be listed.
    """
    if config.cold_start.steps and config.cold_start.right and config.cold_start.teacher == "greedy":
        for game in {stage.game for entry in curriculum.entries for stage in entry.stages}:
            try:
                all_actions(game)
            except UsageError as error:
                raise UsageError(f"{error}: give --cold-start.teacher oracle") from None


@dataclass(frozen=True)
class Demonstrations:
    """Demonstrations by their number, each of which follows from the configuration and that number alone.

    Attributes:
        config: Which positions, and who teaches.
        curriculum: Which games.
        progress: Where in the curriculum.
        encoder: Of the model that learns.
    """

    config: TrainConfig
    curriculum: Curriculum
    progress: Progress
    encoder: Encoder

    def batch(self, step: int) -> list[Sample]:
        """Those of a step of the cold start."""
        size = self.config.cold_start.batch
        return [self.draw(row) for row in range(step * size, (step + 1) * size)]

    def draw(self, row: int) -> Sample:
        """One of them.

        Random answers may come before it, so that prompts with earlier turns, and with the reason why an answer was not
        played, are known.
        """
        config = self.config
        seed = config.seed + SFT_STREAM
        where = (self.curriculum, self.progress, seed, [row], 1)
        before = max(config.cold_start.answers_before, min(config.play.max_turns - 1, config.play.history + 1))
        play = replace(config.play, max_turns=max(config.play.max_turns, before + 1))
        episode = next(start_rollouts(*where, play, config.states, config.reward, transform=config.look))
        game, position, state = episode.pick.game, episode.observation, episode.live.episode.state
        rng = np.random.default_rng([seed, row])
        for _ in range(int(rng.integers(before + 1))):
            episode.respond(Reply(expert_response(game, state, config.cold_start.teacher, 0.0, config.reward, rng)))
            if episode.done:
                break
            position, state = episode.observation, episode.live.episode.state
        text = expert_response(game, state, config.cold_start.teacher, config.cold_start.right, config.reward, rng)
        return Sample(self.encoder.encode(position.prompt, position.images), self.encoder.tokens(text))
