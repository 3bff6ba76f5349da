"""Records of training: rollouts in the format of evaluations, `result.json`, and settings of a checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.pages.training import read_curve
from vlmgym.rollout.states import FIRST_VALIDATION_SEED, StateConfig, split_questions
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.runs.files import check_output_folder, free_path, json_bytes, replace_file, write_file, writing
from vlmgym.runs.record import EpisodeRecord, GameRecord, PolicyRecord, RunRecord, now, versions
from vlmgym.runs.run import RUN
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.statistics import confidence_interval
from vlmgym.training.states import MultiTurnConfig

RESULT = "result.json"
FINAL_EPISODES = 100
"""`final_reward` is averaged over the last episodes, at most this many."""

NUMBERED = ("checkpoints/step_*", "global_step_*", "rollouts/step_*.jsonl", "rollouts/validation_*.jsonl")
"""Glob patterns for files and folders whose names contain a step number."""
FINAL = (RESULT, "curve.png", "model", "evaluation/after*")
"""Glob patterns for files and folders that describe the run after its last step."""


def begin_rollout_records(
    folder: Path,
    curriculum: Curriculum,
    policy: PolicyRecord,
    play: MultiTurnConfig,
    reward: RewardConfig,
    episodes: int,
) -> None:
    """Create a run folder for rollouts, which `vlmgym report` can read.

    Raises:
        UsageError: The folder has files, but no `run.json`.
    """
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
    check_output_folder(folder, RUN)
    write_file(folder / RUN, json_bytes(config))


def write_rollout_records(folder: Path, name: str, records: Iterable[EpisodeRecord]) -> None:
    """Write episode records to `NAME.jsonl`."""
    write_file(folder / f"{name}.jsonl", (record.model_dump_json().encode() + b"\n" for record in records))


def set_aside(folder: Path, step: int) -> Path | None:
    """Move everything written after a step to a new folder within the run; return this folder.

    Return None if nothing was written after the step. The metrics file is copied, not moved, because it also contains
    the earlier steps, which the trainer keeps.
    """
    later = [path for pattern in NUMBERED for path in sorted(folder.glob(pattern)) if _step(path) > step]
    curve = folder / "curve.jsonl"
    if not later and not any(row["step"] > step for row in read_curve(curve)):
        return None
    aside = free_path(folder / f"after_step_{step:06d}")
    for path in (*later, *(path for pattern in FINAL for path in sorted(folder.glob(pattern)))):
        target = aside / path.relative_to(folder)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    if curve.exists():
        with writing(aside):
            aside.mkdir(exist_ok=True)
            shutil.copy2(curve, aside / curve.name)
    return aside


def _step(path: Path) -> int:
    return int(re.findall(r"\d+", path.stem)[-1])


def make_trained_record(
    curriculum: Curriculum,
    progress: Progress,
    play: MultiTurnConfig,
    states: StateConfig,
    reward: RewardConfig,
    **sampling_and_trainer: Any,
) -> TrainedRecord:
    """Describe what a checkpoint was trained on, for `vlmgym eval --as-trained`.

    `sampling_and_trainer` has the remaining fields of `TrainedRecord`.
    """
    reached = [entry.stages[state.stage] for entry, state in zip(curriculum.entries, progress.entries)]
    splits = [split_questions(stage.game, states.validation_fraction) for stage in reached]
    return TrainedRecord(
        games=tuple(GameRecord.of(stage.game) for stage in reached),
        stages=tuple(stage.name for stage in reached),
        curriculum=curriculum.to_data(),
        reward=reward,
        prompts=play.prompts,
        max_turns=play.max_turns,
        first_seed=FIRST_VALIDATION_SEED,
        validation_questions=min((len(split.validation) for split in splits if split is not None), default=None),
        **sampling_and_trainer,
    )


def write_result(
    folder: Path,
    *,
    rewards: Sequence[float],
    steps: int,
    episodes: int,
    validation: Mapping[str, Any],
    seconds: float,
    paths: Mapping[str, Path],
) -> dict[str, Any]:
    """Write the file atomically and return its contents.

    Args:
        folder: Folder of the run.
        rewards: Total rewards of at least the last `FINAL_EPISODES` episodes, in order.
        steps: Number of steps, including those before the run was resumed.
        episodes: Number of episodes, including those before the run was resumed.
        validation: Validation `before` and `after` training, and of a `control`, with 95% intervals.
        seconds: Duration since the run was started or last resumed.
        paths: Files and folders of the run by name; missing ones are left out.
    """
    last = rewards[-FINAL_EPISODES:]
    result = {
        "final_reward": float(np.mean(last)) if last else None,
        "final_episodes": len(last),
        "total_steps": steps,
        "total_episodes": episodes,
        "validation": validation,
        "seconds": seconds,
        "paths": {name: str(path) for name, path in paths.items() if path.exists()},
    }
    replace_file(folder / RESULT, json_bytes(result))
    return result


def last_rewards(rollouts: Path, step: int) -> list[float]:
    """Read the total rewards of the last `FINAL_EPISODES` episodes up to `step`; of fewer if records are missing."""
    rewards: list[float] = []
    while step > 0 and len(rewards) < FINAL_EPISODES and (path := rollouts / f"step_{step:06d}.jsonl").exists():
        played = [record for record in read_records(path) if record.status != "error"]
        rewards = [sum(turn.reward.total for turn in record.turns) for record in played] + rewards
        step -= 1
    return rewards[-FINAL_EPISODES:]


def validation_summary(rollouts: Path, step: int) -> dict[str, Any] | None:
    """Summarise the validation episodes of a step from their records; return None if there are none.

    Returns:
        A dict with the single key `episodes`: the `score_summary` of each game, keyed by game id. Further configs of
        the same game are keyed by `ID (2)` and so on.
    """
    path = rollouts / f"validation_{step:06d}.jsonl"
    if not path.exists():
        return None
    games: dict[str, dict[str, list[EpisodeRecord]]] = {}
    for record in read_records(path):
        games.setdefault(record.game.id, {}).setdefault(json.dumps(record.game.config), []).append(record)
    return {
        "episodes": {
            game if number == 1 else f"{game} ({number})": score_summary(records)
            for game, configs in games.items()
            for number, records in enumerate(configs.values(), 1)
        }
    }


def score_summary(records: Iterable[EpisodeRecord]) -> dict[str, Any]:
    """Summarise the scores of a game's episodes, ignoring episodes without a score.

    Returns:
        Mean `score`, its 95% interval `score_ci` and the number of `episodes`. The interval is Wilson's if all episodes
        have a single turn and score 0 or 1, otherwise Student's t. Score and interval are None if undefined.
    """
    records = [record for record in records if record.score is not None]
    scores = [record.score or 0.0 for record in records]
    interval = confidence_interval(scores, unit_interval=all(record.is_single_turn for record in records))
    return {"score": float(np.mean(scores)) if scores else None, "score_ci": interval, "episodes": len(scores)}


def read_records(path: Path) -> list[EpisodeRecord]:
    """Read a file of episode records."""
    with path.open(encoding="utf-8") as file:
        return [EpisodeRecord.model_validate_json(line) for line in file]
