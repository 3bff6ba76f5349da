"""Records of training rollouts in the evaluator's format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from training.core.states import PlayConfig
from vlmgym.curriculum import Curriculum
from vlmgym.records.episode import GameRecord, PolicyRecord, now, versions
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import RunRecord
from vlmgym.records.run_folder import RunFolder
from vlmgym.sandbox.core.reward import RewardConfig


def begin_rollout_records(
    folder: Path, curriculum: Curriculum, policy: PolicyRecord, play: PlayConfig, reward: RewardConfig, episodes: int
) -> None:
    """Create a run folder of rollouts for `vlmgym report`; raise `UsageError` for foreign files in it."""
    config = RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, curriculum.games)),
        policy=policy,
        reward=reward,
        prompts=play.prompts,
        max_turns=play.max_turns,
        seed=0,
        episodes=episodes,
        options={},
    )
    run = RunFolder(folder)
    run.output.check_own()
    run.write_config(config)


def write_rollout_records(folder: Path, name: str, records: Iterable[str]) -> None:
    """Write episode records, given as JSON, to `NAME.jsonl`; raise `UsageError` unless vlmgym wrote an existing one."""
    output = OutputFolder(folder)
    output.write(output.folder / f"{name}.jsonl", (record.encode() + b"\n" for record in records))
