"""Summary tables for the terminal and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from vlmgym.errors import truncate
from vlmgym.runs.record import Estimate, RunRecord, RunSummary, StageSummary, SuiteSummary, Summary
from vlmgym.sandbox.core.prompt import CONTROLS, PromptConfig

MANY = 6
"""Maximum number of games that are listed in titles and have a column each in the terminal table."""
SHORT = ("mean score", "95% interval", "illegal", "unparsable")
"""Columns of the terminal table that is used for more than `MANY` games, with a row per game."""
ALL_STAGES = ", all stages together"
"""Appended to a mean over stages of different difficulty, for which there is no interval."""


def run_title(config: RunRecord) -> str:
    """Return a title: games, difficulty levels, policy, model, and version of vlmgym."""
    levels = f" ({', '.join(_levels(config))})" if config.difficulty is not None else ""
    ids = config.game_ids
    games = ", ".join(ids) if len(ids) <= MANY else f"{len(ids)} games"
    return f"{games}{levels}: {config.policy.label}, {vlmgym_version(config)}"


def vlmgym_version(config: RunRecord) -> str:
    """Return the version of vlmgym that started the run."""
    return f"vlmgym {config.versions.get('vlmgym', 'of unknown version')}"


def difficulty(config: RunRecord, game: str) -> str:
    """Return difficulty levels and overrides of a game; empty for a curriculum."""
    overrides = config.difficulty.overrides.get(game, {}) if config.difficulty is not None else {}
    return ", ".join(
        [*_levels(config), *(f"{name}={truncate(json.dumps(value), 40)}" for name, value in overrides.items())]
    )


def game_rows(config: RunRecord, game: str, summary: Summary) -> dict[str, str]:
    """Return the table rows of a game, by name."""
    first = {"difficulty": difficulty(config, game), "model": config.policy.model}
    return {name: words for name, words in first.items() if words} | dict(summary_rows(summary))


def summary_table(config: RunRecord, run: RunSummary) -> Table:
    """Make a table with one column per game or, for many games, a shorter one with one row per game."""
    games = {game: game_rows(config, game, summary) for game, summary in run.games.items()}
    if len(games) > MANY:
        table = Table("", *SHORT, title=run_title(config), title_justify="left")
        for game, words in games.items():
            table.add_row(game, *(words.get(name, "") for name in SHORT))
        return table
    table = Table(title=run_title(config), title_justify="left", show_header=len(games) > 1)
    table.add_column(style="bold")
    for game in games:
        table.add_column(game)
    for name in dict.fromkeys(name for words in games.values() for name in words):
        table.add_row(name, *(words.get(name, "") for words in games.values()))
    table.add_row("speed", f"{run.turns_per_second:,.1f} turns/s, {run.seconds:.1f} s", *[""] * (len(games) - 1))
    return table


@dataclass(frozen=True)
class PageTable:
    """A plain-text table for pages and the terminal, with a note below; each row starts with its name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def rich(self) -> Table:
        """Return the table for the terminal, without the note."""
        table = Table(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        return table


def format_estimate(value: Estimate) -> str:
    """Format a normalised score with its standard error, if known."""
    return f"{value[0]:.3f}" if value[1] is None else f"{value[0]:.3f} ± {value[1]:.3f}"


def suite_table(name: str, suite: SuiteSummary) -> PageTable:
    """Make a table of normalised scores: a row for each game, then one for each skill, then the mean of all games."""
    rows = []
    for game, result in suite.games.items():
        numbers = (f"{value:,.4g}" for value in (result.score_mean, result.random, result.oracle))
        rows.append((game, *numbers, format_estimate(result.normalised)))
    means = suite.skills | ({} if suite.score is None else {"mean of all games": suite.score})
    rows += [(skill, "", "", "", format_estimate(mean)) for skill, mean in means.items()]
    note = "Normalised scores are 0 for random and 1 for the oracle."
    return PageTable(name, ("", "score", "random", "oracle", "normalised"), rows, note)


def bias_note(games: Mapping[str, Summary]) -> str:
    """Return a warning about missing results, or an empty string."""
    missing = sum(sum(game.unfinished.values()) for game in games.values())
    results = sum(game.episodes for game in games.values())
    if not missing or not results:
        return ""
    return (
        f"Means cover {results:,} of {results + missing:,} episodes. Episodes that end early are more likely to be "
        "included, which may bias the means."
    )


def control_note(prompts: PromptConfig) -> str:
    """Return a sentence about the images of a control experiment, or an empty string."""
    return "" if prompts.images == "true" else f"Control experiment: the policy was shown {CONTROLS[prompts.images]}."


def summary_rows(game: Summary) -> list[tuple[str, str]]:
    """Return the non-empty rows of a game's table: name and value."""
    seen = (game.perception_accuracy, game.perception_exact_match)
    predicted = (game.prediction_accuracy, game.prediction_exact_match)
    no_perception = "n/a" if game.turns else ""
    rows = [
        ("served model", ", ".join(game.served_models) if len(game.served_models) < 2 else _counts(game.served_models)),
        ("episodes", f"{game.episodes:,}"),
        ("no result", _counts(game.unfinished)),
        ("mean score", _with_error(game.score_mean, game.score_stderr) + (ALL_STAGES if len(game.stages) > 1 else "")),
        ("95% interval", _words("{:,.2f} to {:,.2f}", *(game.score_ci or [None]))),
        *((f"stage {name}", _stage(stage)) for name, stage in game.stages.items()),
        ("best score", _words("{:,.6g}", game.score_max)),
        ("illegal", _words("{:.1%} of turns", game.illegal_rate)),
        ("unparsable", _words("{:.1%} of turns", game.unparsable_rate)),
        ("perception", _words("{:.1%} of cells correct, all correct in {:.1%} of turns", *seen) or no_perception),
        ("prediction", _words("{:.1%} of changed cells correct, board correct in {:.1%} of turns", *predicted)),
        ("reasoning", _reasoning(game)),
        *((name, _counts(counts)) for name, counts in game.metric_counts.items()),
        *((name, _with_error(*mean)) for name, mean in game.metric_means.items()),
        ("end reasons", _counts(game.end_reasons)),
        ("tokens", _words("{:,} in prompts, {:,} in responses", game.prompt_tokens, game.completion_tokens or 0)),
        ("cost", _words("{:,.6g}", game.cost)),
        ("latency", _words("{:.3g} s (median), {:.3g} s (95th percentile)", game.latency_p50, game.latency_p95)),
        ("turns", f"{game.turns:,}"),
    ]
    return [(name, words) for name, words in rows if words]


def _levels(config: RunRecord) -> list[str]:
    levels = config.difficulty
    return [f"perception {levels.perception}", f"reasoning {levels.reasoning}"] if levels is not None else []


def _stage(stage: StageSummary) -> str:
    return f"{_with_error(stage.score_mean, stage.score_stderr)}, {stage.episodes:,} episodes"


def _words(form: str, *numbers: float | None) -> str:
    """Format numbers, or return an empty string if the first is unknown."""
    return "" if numbers[0] is None else form.format(*numbers)


def _reasoning(game: Summary) -> str:
    if game.reasoning_accuracy is None or game.reasoning_exact_match is None:
        return "" if game.statements is None or not game.turns else "no checkable statements"
    words = f"{game.reasoning_accuracy:.1%} of statements true, all true in {game.reasoning_exact_match:.1%} of turns"
    if game.first_false_statement is not None:
        words += f", first false one: number {game.first_false_statement:g} (median)"
    if game.wrong_reasoning is not None:
        words += f"; {game.wrong_reasoning:.1%} of rewarded answers have a false one"
    return words


def _with_error(mean: float | None, error: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:,.2f}" if error is None else f"{mean:,.2f} ± {error:,.2f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{word}: {count}" for word, count in counts.items())
