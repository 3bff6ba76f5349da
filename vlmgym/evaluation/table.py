"""The summary as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from vlmgym.evaluation.record import Summary


def summary_table(title: str, summary: Summary) -> Table:
    """A two-column table of what a reader asks first."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("episodes", f"{summary.episodes:,}")
    table.add_row("mean score", _with_error(summary.score_mean, summary.score_se))
    table.add_row("best score", f"{summary.score_best:,.6g}")
    table.add_row("illegal", f"{summary.illegal_rate:.1%} of turns")
    table.add_row("unparsable", f"{summary.unparsable_rate:.1%} of turns")
    if summary.perception_mean is not None:
        whole = f"all right in {summary.perception_exact_rate:.1%} of turns"
        table.add_row("perception", f"{summary.perception_mean:.1%} of cells right, {whole}")
    for name, counts in summary.metric_counts.items():
        table.add_row(name, _counts(counts))
    for name, (mean, error) in summary.metric_means.items():
        table.add_row(name, _with_error(mean, error))
    table.add_row("ends", _counts(summary.ends))
    table.add_row(
        "speed", f"{summary.turns_per_second:,.0f} turns a second ({summary.turns:,} in {summary.seconds:.1f} s)"
    )
    return table


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:,.2f}" if error is None else f"{mean:,.2f} ± {error:,.2f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{word}: {count}" for word, count in counts.items())
