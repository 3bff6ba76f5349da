"""Episodes of a training step: how they are played, started and recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.core.states import StateConfig, sample_state
from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError
from vlmgym.policies.base import identity
from vlmgym.records.episode import GameRecord, PolicyRecord, now, versions
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import RunRecord
from vlmgym.records.run_folder import RunFolder
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.rollout.turn import EpisodeConfig, LiveEpisode, Transform
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.reward import RewardConfig


def blank(image: ImageArray) -> ImageArray:
    """Replace an image by a grey one of the same shape: a control that trains without vision."""
    return np.full_like(image, 128)


@dataclass(frozen=True, kw_only=True)
class PlayConfig:
    """Length and history of training episodes."""

    max_turns: int = 1
    """Maximum number of turns. 1 trains on single responses to sampled states; more trains on episodes that start
    there. For an episode cut off by this limit, PPO bootstraps from the value of the final state; GRPO does not."""
    history: int = 0
    """Number of past turns that a prompt repeats."""
    history_images: int = 0
    """Number of past turns that include images."""

    def __post_init__(self) -> None:
        if self.max_turns < 1 or not 0 <= self.history_images <= self.history:
            raise UsageError(
                f"max_turns must be at least 1, and history_images between 0 and history, got {self.max_turns}, "
                f"{self.history_images} and {self.history}"
            )


def start_rollouts(
    curriculum: Curriculum,
    progress: Progress,
    seed: int,
    prompt_ids: Sequence[int],
    group_size: int,
    play: PlayConfig,
    states: StateConfig,
    reward: RewardConfig,
    *,
    validation: bool = False,
    transform: Transform = identity,
) -> Iterator[EpisodeRollout]:
    """Start the episodes of some prompts, group by group; a group shares its initial state and random generator.

    Args:
        curriculum: Games and stages.
        progress: Progress through the curriculum.
        seed: Seed of the training run.
        prompt_ids: Indices of the initial states.
        group_size: Episodes per initial state.
        play: Limits and history.
        states: Distribution of initial states.
        reward: Weights and shaping.
        validation: Draw from the validation questions of a finite dataset.
        transform: Applied to each image before the model sees it.
    """
    for prompt_id in prompt_ids:
        pick = curriculum.pick(progress, seed, prompt_id)
        config = EpisodeConfig(pick.game, reward, play.max_turns, play.history, play.history_images, transform)
        snapshot = sample_state(pick.game, seed, prompt_id, states, reward, validation=validation)
        state = LiveEpisode.at(config, snapshot).state()
        for sample_idx in range(group_size):
            yield EpisodeRollout(pick, LiveEpisode.restore(config, state), prompt_id, sample_idx)


def begin_rollout_records(
    folder: Path, curriculum: Curriculum, policy: PolicyRecord, play: PlayConfig, reward: RewardConfig, episodes: int
) -> None:
    """Create a run folder for the rollouts, which `vlmgym report` can read.

    Raises:
        UsageError: It contains a file that vlmgym did not write.
        OutputError: It cannot be written.
    """
    config = RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, curriculum.games)),
        policy=policy,
        reward=reward,
        history=play.history,
        history_images=play.history_images,
        max_turns=play.max_turns,
        seed=0,
        episodes=episodes,
        options={},
    )
    run = RunFolder(folder)
    run.output.check_own()
    run.write_config(config)


def write_rollout_records(folder: Path, name: str, records: Iterable[str]) -> None:
    """Write episode records, given as JSON, to `NAME.jsonl`.

    Raises:
        UsageError: The file exists and vlmgym did not write it.
        OutputError: It cannot be written.
    """
    output = OutputFolder(folder)
    output.write(output.folder / f"{name}.jsonl", (record.encode() + b"\n" for record in records))
