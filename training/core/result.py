"""`result.json` of a training run, the same for all trainers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlmgym.records.episode import EpisodeRecord
from vlmgym.records.output_folder import OutputFolder
from vlmgym.statistics import confidence_interval

RESULT = "result.json"
FINAL_EPISODES = 100
"""Number of last episodes averaged in `final_reward`."""


def write_result(
    folder: Path,
    *,
    rewards: Sequence[float],
    steps: int,
    episodes: int,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    seconds: float,
    paths: Mapping[str, Path],
) -> dict[str, Any]:
    """Write the file atomically and return its contents; raise `UsageError` if vlmgym did not write an existing one.

    Rewards of the last episodes, steps and episodes also count what preceded a resumption, seconds do not. Validation
    before and after training has 95% intervals. Missing files and folders are left out of `paths`.
    """
    last = rewards[-FINAL_EPISODES:]
    result = {
        "final_reward": float(np.mean(last)) if last else None,
        "final_episodes": len(last),
        "total_steps": steps,
        "total_episodes": episodes,
        "validation": {"before": before, "after": after},
        "seconds": seconds,
        "paths": {name: str(path) for name, path in paths.items() if path.exists()},
    }
    output = OutputFolder(folder)
    output.write(output.folder / RESULT, (json.dumps(result, indent=1) + "\n").encode())
    return result


def last_rewards(rollouts: Path, step: int) -> list[float]:
    """Read the total rewards of the last episodes up to a step from the records, at most `FINAL_EPISODES`."""
    rewards: list[float] = []
    while step > 0 and len(rewards) < FINAL_EPISODES and (path := rollouts / f"step_{step:06d}.jsonl").exists():
        rewards = [sum(turn.reward.total for turn in record.turns) for record in read_records(path)] + rewards
        step -= 1
    return rewards[-FINAL_EPISODES:]


def validation_summary(rollouts: Path, step: int) -> dict[str, Any] | None:
    """Summarise the validation episodes of a step from the records; None without any.

    Returns:
        `episodes`: by game, its number of `episodes`, mean `score` and 95% interval `score_ci`.
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
    """Summarise the scores of a game, with Wilson's interval for single turns that score 0 or 1."""
    records = [record for record in records if record.score is not None]
    scores = [record.score or 0.0 for record in records]
    interval = confidence_interval(scores, unit_interval=all(record.is_single_turn for record in records))
    return {"score": float(np.mean(scores)), "score_ci": interval, "episodes": len(scores)}


def read_records(path: Path) -> list[EpisodeRecord]:
    """Read a file of episode records."""
    with path.open(encoding="utf-8") as file:
        return [EpisodeRecord.model_validate_json(line) for line in file]
