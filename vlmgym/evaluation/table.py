"""The summary as a table on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from rich.markup import escape
from rich.table import Table

from vlmgym.evaluation.record import RunSummary, Summary


def summary_table(policy: str, run: RunSummary) -> Table:
    """What a reader asks first: a column for each game."""
    games = list(run.games.values())
    table = Table(title=f"{', '.join(run.games)}: {policy}", title_justify="left", show_header=len(games) > 1)
    table.add_column(style="bold")
    for game in run.games:
        table.add_column(game)

    def row(name: str, tell: Callable[[Summary], str]) -> None:
        cells = [tell(game) for game in games]
        if any(cells):
            table.add_row(name, *map(escape, cells))

    row("episodes", lambda game: f"{game.episodes:,}")
    row("no result", lambda game: _counts(game.unfinished))
    row("mean score", lambda game: _with_error(game.score_mean, game.score_se))
    row(
        "95% interval",
        lambda game: "" if game.score_ci is None else f"{game.score_ci[0]:,.2f} to {game.score_ci[1]:,.2f}",
    )
    row("best score", lambda game: "" if game.score_best is None else f"{game.score_best:,.6g}")
    row("illegal", lambda game: f"{game.illegal_rate:.1%} of turns")
    row("unparsable", lambda game: f"{game.unparsable_rate:.1%} of turns")
    row("perception", _perception)
    for name in dict.fromkeys(name for game in games for name in game.metric_counts):
        row(name, partial(_metric_counts, name))
    for name in dict.fromkeys(name for game in games for name in game.metric_means):
        row(name, partial(_metric_mean, name))
    row("ends", lambda game: _counts(game.ends))
    row("tokens", _tokens)
    row("cost", lambda game: "" if game.cost is None else f"{game.cost:,.6g}")
    row("latency", _latency)
    row("turns", lambda game: f"{game.turns:,}")
    table.add_row("speed", f"{run.turns_per_second:,.1f} turns a second, {run.seconds:.1f} s", *[""] * (len(games) - 1))
    return table


def _metric_counts(name: str, game: Summary) -> str:
    return _counts(game.metric_counts.get(name, {}))


def _metric_mean(name: str, game: Summary) -> str:
    return _with_error(*game.metric_means.get(name, (None, None)))


def _perception(game: Summary) -> str:
    if game.perception_mean is None:
        return ""
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
