"""Page data of runs and games: facts, summaries and curves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlmgym.evaluation.curves import EpisodeRewards, mean_curve
from vlmgym.evaluation.summary_table import bias_note, game_rows
from vlmgym.records.run import RunRecord, RunSummary
from vlmgym.records.store import StoredRun
from vlmgym.sandbox.core.prompt import PromptConfig

OBSERVATIONS = {"image": "images", "text": "text descriptions, no images", "both": "images and text descriptions"}
"""Descriptions of the values of `PromptConfig.observation`."""
SINGLE_CURVES = 40
"""Maximum number of single-episode curves per game and run."""


@dataclass(frozen=True)
class LabelledRun:
    """A run shown in a report, with its label and summary."""

    label: str
    run: StoredRun
    summary: RunSummary


def run_facts(run: LabelledRun) -> dict[str, Any]:
    """Return the facts that the page shows about a run, and the numbers of episodes without a result, by status."""
    config, games = run.run.config, run.summary.games
    missing: Counter[str] = Counter()
    for summary in games.values():
        missing.update(summary.unfinished)
    set_options = {name: value for name, value in config.options.items() if name != "policy" and value is not None}
    return {
        "label": run.label,
        "policy": config.policy.label,
        "lead": [
            _episodes(config),
            f"at most {config.max_turns:,} turns per episode",
            f"started {config.started[:16].replace('T', ' ')} UTC",
        ],
        "facts": [
            ("policy", config.policy.name),
            *((f"policy: {name}", _words(value)) for name, value in config.policy.options.items() if value is not None),
            *_games(config),
            ("episodes", _episodes(config)),
            ("turns", f"at most {config.max_turns:,} per episode"),
            ("observation", OBSERVATIONS[config.prompts.observation]),
            ("history", _history(config)),
            ("reward", _settings(config.reward.model_dump(exclude_none=True))),
            *((f"option: {name}", _words(value)) for name, value in set_options.items()),
            ("started", config.started),
            ("versions", ", ".join(f"{name} {version}" for name, version in config.versions.items())),
        ],
        "hasImages": config.prompts.has_images,
        "missing": missing,
        "bias": bias_note(games),
        "stop_reason": run.summary.stop_reason,
    }


def game_facts(game: str, runs: Sequence[LabelledRun], rewards: Sequence[Sequence[EpisodeRewards]]) -> dict[str, Any]:
    """Return the summary and curves of a game in each run; `rewards` has the rewards of the results in each run."""
    summaries = [run.summary.games.get(game) for run in runs]
    words = [
        {} if summary is None else game_rows(run.run.config, game, summary) for run, summary in zip(runs, summaries)
    ]
    names = dict.fromkeys(name for column in words for name in column)
    return {
        "id": game,
        "table": [(name, [column.get(name, "") for column in words]) for name in names],
        "summaries": summaries,
        "curves": [
            curves(run, one_stage=summary is None or len(summary.stages) < 2)
            for run, summary in zip(rewards, summaries)
        ],
    }


def curves(episodes: Sequence[EpisodeRewards], *, one_stage: bool) -> dict[str, Any] | None:
    """Compute the mean curve, its interval from `low` to `high`, and the curves of `single` episodes.

    `low` and `high` are None without an interval. Returns None without episodes.
    """
    if not episodes:
        return None
    curve = mean_curve(episodes, one_stage=one_stage)
    low, high = map(_rounded, curve.interval) if curve.interval is not None else (None, None)
    return {
        "turns": curve.turns.tolist(),
        "mean": _rounded(curve.mean),
        "low": low,
        "high": high,
        "single": [
            _rounded(episode.totals[curve.turns[curve.turns <= len(episode.rewards)]])
            for episode in episodes[:SINGLE_CURVES]
        ],
        "count": len(episodes),
        "stages": not one_stage,
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _settings(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_words(value)}" for name, value in config.items())


def _games(config: RunRecord) -> list[tuple[str, str]]:
    if config.curriculum is None:
        return [(game.id, _settings(game.config)) for game in config.games]
    return [("games", ", ".join(config.game_ids)), ("curriculum", _words(config.curriculum.file))]


def _episodes(config: RunRecord) -> str:
    of = "of each game" if config.curriculum is None else "of the curriculum"
    seeds = "seeds" if config.private_salt is None else "private seeds"
    return f"{config.episodes:,} episodes {of}, {seeds} {config.seed} to {config.seed + config.episodes - 1}"


def _history(config: RunRecord) -> str:
    games: dict[str, list[str]] = {}
    for game in config.games:
        games.setdefault(_history_of(config.prompts.of(game.history)), []).append(game.id)
    if len(games) == 1:
        return next(iter(games))
    return "; ".join(f"{', '.join(ids)}: {words}" for words, ids in games.items())


def _history_of(prompts: PromptConfig) -> str:
    where = "conversation" if prompts.chat else "prompt"
    if prompts.history == 0:
        return f"no earlier turns in the {where}"
    turns = "all" if prompts.history is None else f"{prompts.history:,}"
    shown = "images" if prompts.has_images or prompts.chat else "descriptions"
    return f"{turns} earlier turns in the {where}, at most {prompts.image_turns} of them with {shown}"
