"""What the page shows at once: what was run, summaries, curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vlmgym.evaluation.record import EpisodeRecord, RunRecord, RunSummary, Summary
from vlmgym.evaluation.report.episode import StoredRecord
from vlmgym.evaluation.summary import students_t
from vlmgym.evaluation.table import bias_note, game_words
from vlmgym.sandbox.reward import RewardConfig

POINTS = 200
"""Points of a curve, at most."""
SINGLE_CURVES = 40
"""Episodes that have a curve of their own, the first ones."""


@dataclass(frozen=True)
class LabelledRun:
    """A run, and what it is called where two stand side by side.

    Attributes:
        label: Its name.
        asked: What was asked for.
        episodes: The latest record of each episode, or where it is read, in the order of the games and seeds.
        summaries: The summary of each game by its id.
        stopped: Why the run stopped before everything was played, or None.
    """

    label: str
    asked: RunRecord
    episodes: Sequence[EpisodeRecord | StoredRecord]
    summaries: Mapping[str, Summary]
    stopped: str | None = None

    @classmethod
    def of(
        cls, asked: RunRecord, episodes: Sequence[EpisodeRecord | StoredRecord], summary: RunSummary, label: str = ""
    ) -> LabelledRun:
        """A run with its summary; by default it is called by its policy and model."""
        return cls(label or asked.policy.label, asked, episodes, summary.games, summary.stopped)


def run_facts(run: LabelledRun) -> dict[str, Any]:
    """What was run, as names and words, and what is missing."""
    asked = run.asked
    missing: dict[str, int] = {}
    for summary in run.summaries.values():
        for status, count in summary.unfinished.items():
            missing[status] = missing.get(status, 0) + count
    return {
        "label": run.label,
        "policy": asked.policy.name,
        "facts": [
            ("policy", asked.policy.name),
            *((f"policy: {name}", _words(value)) for name, value in asked.policy.options.items() if value is not None),
            *_games(asked),
            ("episodes", _episodes(asked)),
            ("turns", f"at most {asked.max_turns:,} turns an episode"),
            ("history", _history(asked)),
            ("reward", _reward(asked.reward)),
            *((f"option: {name}", _words(value)) for name, value in asked.options.items() if _told(name, value)),
            ("started", asked.started),
            ("versions", ", ".join(f"{name} {version}" for name, version in asked.versions.items())),
        ],
        "missing": missing,
        "bias": bias_note(run.summaries),
        "stopped": run.stopped,
    }


def game_facts(game: str, runs: Sequence[LabelledRun], gains: Sequence[Sequence[Sequence[float]]]) -> dict[str, Any]:
    """Summaries and curves of a game, one for each run.

    Args:
        game: Its id.
        runs: The runs.
        gains: For each run, for each of its results of this game, the game's reward of each turn.
    """
    summaries = [run.summaries.get(game) for run in runs]
    words = [{} if summary is None else game_words(run.asked, game, summary) for run, summary in zip(runs, summaries)]
    names = dict.fromkeys(name for column in words for name in column)
    return {
        "id": game,
        "table": [(name, [column.get(name, "") for column in words]) for name in names],
        "summaries": summaries,
        "curves": [
            curves(run, interval=summary is None or len(summary.stages) < 2) for run, summary in zip(gains, summaries)
        ],
    }


def curves(gains: Sequence[Sequence[float]], *, interval: bool) -> dict[str, Any] | None:
    """Cumulative game reward of episodes over turns: `mean`, its 95% interval `low` to `high`, and `single` ones.

    Without `interval`, for episodes of several stages of a curriculum, `low` and `high` are None.

    An episode that ended early keeps its score to the right, so that the mean is one over all episodes everywhere.
    """
    if not gains:
        return None
    longest = max(map(len, gains))
    turns = np.unique(np.linspace(0, longest, min(longest, POINTS) + 1).round().astype(int))
    totals = np.empty((len(gains), len(turns)))
    for line, gained in zip(totals, gains):
        line[:] = np.concatenate([[0.0], np.cumsum(gained)])[np.minimum(turns, len(gained))]
    mean, count = totals.mean(axis=0), len(gains)
    reach = np.zeros(len(turns))
    if interval and count > 1:
        reach = students_t(count) * totals.std(axis=0, ddof=1) / np.sqrt(count)
    return {
        "turns": turns.tolist(),
        "mean": _rounded(mean),
        "low": _rounded(mean - reach) if interval else None,
        "high": _rounded(mean + reach) if interval else None,
        "single": [_rounded(line[turns <= len(gained)]) for line, gained in zip(totals[:SINGLE_CURVES], gains)],
        "count": count,
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _told(name: str, value: object) -> bool:
    """Options that were set, but the policy's, which are told apart."""
    return name != "policy" and value is not None


def _settings(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_words(value)}" for name, value in config.items())


def _games(asked: RunRecord) -> list[tuple[str, str]]:
    if asked.curriculum is None:
        return [(game.id, _settings(game.config)) for game in asked.games]
    return [("games", ", ".join(asked.game_ids)), ("curriculum", _words(asked.curriculum.file))]


def _episodes(asked: RunRecord) -> str:
    of = "of each game" if asked.curriculum is None else "of the curriculum"
    return f"{asked.episodes:,} episodes {of}, seeds {asked.seed} to {asked.seed + asked.episodes - 1}"


def _history(asked: RunRecord) -> str:
    if not asked.history:
        return "no earlier turns in the prompt"
    return f"{asked.history} earlier turns in the prompt, the pictures of {asked.history_images} of them"


def _reward(reward: RewardConfig) -> str:
    return ", ".join(f"{name}={_words(value)}" for name, value in reward.model_dump().items() if value is not None)
