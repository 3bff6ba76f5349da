"""The summary as a table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.table import Table

from vlmgym.errors import truncate
from vlmgym.records.run import RunRecord, RunSummary, StageSummary, Summary

ALL_STAGES = ", all stages together"
"""Says of a mean that it is over stages of different difficulty, which has no interval."""


def run_title(asked: RunRecord) -> str:
    """Games, difficulty levels, policy, model, and version of vlmgym."""
    levels = f" ({', '.join(_levels(asked))})" if asked.difficulty is not None else ""
    return f"{', '.join(asked.game_ids)}{levels}: {asked.policy.label}, {vlmgym_version(asked)}"


def vlmgym_version(asked: RunRecord) -> str:
    """The version of vlmgym that a run was begun with."""
    return f"vlmgym {asked.versions.get('vlmgym', 'of unknown version')}"


def difficulty(asked: RunRecord, game: str) -> str:
    """Difficulty levels of a game and the options that differ from them; empty for a curriculum."""
    overrides = asked.difficulty.overrides.get(game, {}) if asked.difficulty is not None else {}
    return ", ".join(
        [*_levels(asked), *(f"{name}={truncate(json.dumps(value), 40)}" for name, value in overrides.items())]
    )


def game_words(asked: RunRecord, game: str, summary: Summary) -> dict[str, str]:
    """The rows of a game in a table of results."""
    first = {"difficulty": difficulty(asked, game), "model": asked.policy.model}
    return {name: words for name, words in first.items() if words} | dict(summary_words(summary))


def summary_table(asked: RunRecord, run: RunSummary) -> Table:
    """What a reader asks first: a column for each game."""
    games = {game: game_words(asked, game, summary) for game, summary in run.games.items()}
    table = Table(title=run_title(asked), title_justify="left", show_header=len(games) > 1)
    table.add_column(style="bold")
    for game in games:
        table.add_column(game)
    for name in dict.fromkeys(name for words in games.values() for name in words):
        table.add_row(name, *(words.get(name, "") for words in games.values()))
    table.add_row("speed", f"{run.turns_per_second:,.1f} turns a second, {run.seconds:.1f} s", *[""] * (len(games) - 1))
    return table


def bias_note(games: Mapping[str, Summary]) -> str:
    """What to keep in mind where results of a run's games are missing, or an empty text."""
    missing = sum(sum(game.unfinished.values()) for game in games.values())
    results = sum(game.episodes for game in games.values())
    if not missing or not results:
        return ""
    return (
        f"The means are over {results:,} of {results + missing:,} episodes. Those that end early are more likely to be "
        "among them, which may shift the means."
    )


def summary_words(game: Summary) -> list[tuple[str, str]]:
    """The rows of the table: name and words, without those that have nothing to say."""
    interval = game.score_ci
    rows = [
        ("served model", ", ".join(game.served_models) if len(game.served_models) < 2 else _counts(game.served_models)),
        ("episodes", f"{game.episodes:,}"),
        ("no result", _counts(game.unfinished)),
        ("mean score", _with_error(game.score_mean, game.score_stderr) + (ALL_STAGES if len(game.stages) > 1 else "")),
        ("95% interval", "" if interval is None else f"{interval[0]:,.2f} to {interval[1]:,.2f}"),
        *((f"stage {name}", _stage(stage)) for name, stage in game.stages.items()),
        ("best score", "" if game.score_best is None else f"{game.score_best:,.6g}"),
        ("illegal", "" if game.illegal_rate is None else f"{game.illegal_rate:.1%} of turns"),
        ("unparsable", "" if game.unparsable_rate is None else f"{game.unparsable_rate:.1%} of turns"),
        ("perception", _perception(game)),
        *((name, _counts(counts)) for name, counts in game.metric_counts.items()),
        *((name, _with_error(*mean)) for name, mean in game.metric_means.items()),
        ("ends", _counts(game.ends)),
        ("tokens", _tokens(game)),
        ("cost", "" if game.cost is None else f"{game.cost:,.6g}"),
        ("latency", _latency(game)),
        ("turns", f"{game.turns:,}"),
    ]
    return [(name, words) for name, words in rows if words]


def _levels(asked: RunRecord) -> list[str]:
    levels = asked.difficulty
    return [f"perception {levels.perception}", f"reasoning {levels.reasoning}"] if levels is not None else []


def _stage(stage: StageSummary) -> str:
    return f"{_with_error(stage.score_mean, stage.score_stderr)}, {stage.episodes:,} episodes"


def _perception(game: Summary) -> str:
    if game.perception_mean is None:
        return "n/a" if game.turns else ""
    return f"{game.perception_mean:.1%} of cells right, all right in {game.perception_exact_rate:.1%} of turns"


def _tokens(game: Summary) -> str:
    if game.prompt_tokens is None:
        return ""
    return f"{game.prompt_tokens:,} in prompts, {game.completion_tokens or 0:,} in responses"


def _latency(game: Summary) -> str:
    if game.latency_median is None:
        return ""
    return f"{game.latency_median:.3g} s (median), {game.latency_p95:.3g} s (95%)"


def _with_error(mean: float | None, error: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:,.2f}" if error is None else f"{mean:,.2f} ± {error:,.2f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{word}: {count}" for word, count in counts.items())
