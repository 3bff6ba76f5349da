"""The `result.json` of a training run, in the same format for all trainers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlmgym.runs.files import json_bytes, replace_file
from vlmgym.runs.record import EpisodeRecord
from vlmgym.statistics import confidence_interval

RESULT = "result.json"
FINAL_EPISODES = 100
"""`final_reward` is averaged over the last episodes, at most this many."""


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
    """Write the file atomically and return its contents.

    Args:
        folder: Folder of the run.
        rewards: Total rewards of at least the last `FINAL_EPISODES` episodes, in order.
        steps: Number of steps, including those before the run was resumed.
        episodes: Number of episodes, including those before the run was resumed.
        before: Validation before training, with 95% intervals.
        after: Validation after training, with 95% intervals.
        seconds: Duration since the run was started or last resumed.
        paths: Files and folders of the run by name; missing ones are left out.
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
    replace_file(folder / RESULT, json_bytes(result))
    return result


def last_rewards(rollouts: Path, step: int) -> list[float]:
    """Read the total rewards of the last `FINAL_EPISODES` episodes up to `step`; of fewer if records are missing."""
    rewards: list[float] = []
    while step > 0 and len(rewards) < FINAL_EPISODES and (path := rollouts / f"step_{step:06d}.jsonl").exists():
        rewards = [sum(turn.reward.total for turn in record.turns) for record in read_records(path)] + rewards
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
        have a single turn and score 0 or 1, otherwise Student's t; None if undefined.
    """
    records = [record for record in records if record.score is not None]
    scores = [record.score or 0.0 for record in records]
    interval = confidence_interval(scores, unit_interval=all(record.is_single_turn for record in records))
    return {"score": float(np.mean(scores)), "score_ci": interval, "episodes": len(scores)}


def read_records(path: Path) -> list[EpisodeRecord]:
    """Read a file of episode records."""
    with path.open(encoding="utf-8") as file:
        return [EpisodeRecord.model_validate_json(line) for line in file]
