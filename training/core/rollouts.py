"""Rollouts of training in the evaluator's form, so that `vlmgym report` makes a page of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from training.core.seats import PlayConfig
from vlmgym.curriculum import Curriculum
from vlmgym.records.episode import GameRecord, PolicyRecord, now, versions
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import RunRecord
from vlmgym.records.run_folder import RunFolder
from vlmgym.sandbox.core.reward import RewardConfig


def begin_rollouts(
    folder: Path, curriculum: Curriculum, policy: PolicyRecord, play: PlayConfig, reward: RewardConfig, episodes: int
) -> None:
    """Make the folder, and say in its `run.json` what the rollouts are of.

    Args:
        folder: Where rollouts go.
        curriculum: What is played.
        policy: Who plays.
        play: How.
        reward: Weights and shaping.
        episodes: Of the whole run.

    Raises:
        UsageError: A file is there that vlmgym did not write.
        OutputError: It cannot be written.
    """
    asked = RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, curriculum.games)),
        policy=policy,
        reward=reward,
        history=play.history,
        history_images=play.history_images,
        max_turns=play.turns,
        seed=0,
        episodes=episodes,
        options={},
    )
    place = RunFolder(folder)
    place.output.check_own()
    place.begin(asked)


def write_rollouts(folder: Path, name: str, records: Iterable[str]) -> None:
    """Write the records of episodes, each as JSON, as a file of that name and a line each.

    Raises:
        UsageError: A file is there that vlmgym did not write.
        OutputError: It cannot be written.
    """
    output = OutputFolder(folder)
    output.write(output.folder / f"{name}.jsonl", (record.encode() + b"\n" for record in records))
