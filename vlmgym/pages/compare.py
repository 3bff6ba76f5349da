"""`vlmgym compare RUN_A RUN_B`: compare two runs on the same seeds: paired differences with intervals, and a page with
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from vlmgym.errors import UsageError
from vlmgym.evaluation.compare import (
    ORDER,
    RATES,
    Comparison,
    GameComparison,
    check_comparable,
    compare_games,
    games_without_sight,
)
from vlmgym.evaluation.config import SavedRunOptions
from vlmgym.evaluation.summary import updated_summary
from vlmgym.evaluation.tables import PageTable
from vlmgym.pages.report import LabelledRun, write_page
from vlmgym.runs.files import check_output_folder, json_bytes, output_folder, replace_file
from vlmgym.runs.store import StoredRun, open_run
from vlmgym.statistics import LEVEL, RESAMPLES, PairedDifference, difference_name
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class CompareConfig(SavedRunOptions):
    """Options of `vlmgym compare`."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, Path]], tyro.conf.arg(metavar="RUN_A RUN_B")]
    """Folders of the runs; differences are first minus second."""
    labels: tuple[str, str] | None = None
    """Labels of the runs, such as: trained baseline. None means their policies, or their folders if the policies are
    equal."""
    output_dir: Path | None = None
    """Folder for compare.json and compare.html. None means compare-RUN_A-RUN_B, next to the first run."""
    page: bool = True
    """Write compare.html."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None and (not all(map(str.strip, self.labels)) or self.labels[0] == self.labels[1]):
            raise UsageError(f"labels must be two different names, got {self.labels[0]!r} and {self.labels[1]!r}")


def compare(config: CompareConfig) -> Comparison:
    """Compare two runs, print a table per game, and write `compare.json` and, if `config.page`, `compare.html`."""
    first, second = (open_run(folder, config.data) for folder in config.runs)
    a, b = first.folder.folder, second.folder.folder
    if a.resolve() == b.resolve():
        raise UsageError(f"cannot compare {a} with itself: choose two runs")
    folder = (config.output_dir or a.with_name(f"compare-{a.name}-{b.name}")).absolute()
    numbers, page = folder / "compare.json", folder / "compare.html"
    check_output_folder(folder, numbers.name)
    labelled = distinct_labels([first, second])
    labels = config.labels or (labelled[0], labelled[1])
    notes, games = compare_pair(first, second, labels)
    if not games:
        raise UsageError(f"{labels[0]} and {labels[1]} have no results with the same game and seed")
    comparison = Comparison(labels=labels, runs=(first.config, second.config), notes=tuple(notes), games=games)
    with output_folder(folder, numbers.name):
        replace_file(numbers, json_bytes(comparison))
    console = make_console()
    for note in notes:
        console.print(f"note: {note}")
    tables = comparison_tables(labels, notes, games)
    for table in tables:
        console.print(table.rich())
    console.print(_note(labels))
    if config.page:
        runs = [LabelledRun(label, run, updated_summary(run)) for label, run in zip(labels, (first, second))]
        title = f"{labels[0]} vs {labels[1]}"
        with config.pool(len(first.episodes) + len(second.episodes)) as workers:
            differences = score_differences([games])
            write_page(page, runs, title=title, workers=workers, tables=tables, differences=differences)
        console.print(f"report  {page}", soft_wrap=True)
    console.print(f"numbers {numbers}", soft_wrap=True)
    return comparison


def compare_pair(
    first: StoredRun, second: StoredRun, labels: tuple[str, str]
) -> tuple[list[str], dict[str, GameComparison]]:
    """Compare two runs: return notes about games that are left out and about other differences, and each game.

    Raises:
        UsageError: The runs differ in a way that rules out a comparison.
    """
    notes = check_comparable(first.config, second.config, labels)
    games = compare_games(first.read(), second.read(), labels)
    common = {*first.config.game_ids} & {*second.config.game_ids}
    notes += [f"{game} is left out: no seed has a result in both runs" for game in sorted(common - set(games))]
    if blind := games_without_sight(first.config, second.config, games):
        notes.insert(0, f"{', '.join(blind)}: the score shows no sight, because grey images do not lower it")
    return notes, games


def comparison_tables(
    labels: tuple[str, str], notes: Sequence[str], games: Mapping[str, GameComparison]
) -> list[PageTable]:
    """Return a table for each game, with a row for each metric."""
    note = " ".join([_note(labels), *(f"Note: {note}." for note in notes)])
    heads = ("mean of", *labels, f"{difference_name(*labels)} ({LEVEL:.0%})")
    return [
        PageTable(_title(game, result), heads, [*_rows(result), *_shares(result, labels)], note)
        for game, result in games.items()
    ]


def score_differences(comparisons: Sequence[Mapping[str, GameComparison]]) -> dict[str, list[str]]:
    """Return the difference in score between the first run and each run, by game, from comparisons with the others."""
    games = dict.fromkeys(game for comparison in comparisons for game in comparison)
    return {
        game: [
            "",
            *(
                _difference(comparison[game].metrics["score"], False) if game in comparison else ""
                for comparison in comparisons
            ),
        ]
        for game in games
    }


def compare_many(runs: Sequence[StoredRun], labels: Sequence[str]) -> dict[str, Any]:
    """Compare the first run with each of the others; return arguments of `page_data`.

    A pair of runs that cannot be compared, such as runs of different levels, has a table that says why.
    """
    tables, comparisons = list[PageTable](), list[Mapping[str, GameComparison]]()
    for run, label in zip(runs[1:], labels[1:]):
        pair, games = (labels[0], label), dict[str, GameComparison]()
        try:
            notes, games = compare_pair(runs[0], run, pair)
            why = "" if games else "no game and seed has a result in both"
        except UsageError as error:
            why = str(error)
        if why:
            tables.append(PageTable(f"{labels[0]} and {label}", (), (), f"Not compared: {why}."))
        else:
            for table in comparison_tables(pair, notes, games):
                tables.append(replace(table, title=f"{difference_name(*pair)}, {table.title}"))
        comparisons.append(games)
    return {"tables": tables, "differences": score_differences(comparisons)}


def _rows(comparison: GameComparison) -> list[tuple[str, str, str, str]]:
    """Return a row for each metric: name, mean of each run, and difference with its interval."""
    names = [name for name in dict.fromkeys([*ORDER, *comparison.metrics]) if name in comparison.metrics]
    rows = []
    for name in names:
        metric, rate = comparison.metrics[name], name in RATES
        less = "" if metric.pairs == comparison.pairs else f" ({metric.pairs:,} pairs)"
        rows.append((name + less, _mean(metric.first, rate), _mean(metric.second, rate), _difference(metric, rate)))
    return rows


def _difference(metric: PairedDifference, rate: bool) -> str:
    scale, unit = (100, " points") if rate else (1, "")
    text = f"{metric.difference * scale:+,.4g}{unit}"
    if metric.interval is None:
        return text
    if metric.interval[0] == metric.interval[1]:
        return f"{text} in every pair"
    low, high = (f"{end * scale:+,.4g}" for end in metric.interval)
    return f"{text} ({low} to {high})"


def _mean(value: float, rate: bool) -> str:
    if rate:
        return f"{value:.1%}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _shares(comparison: GameComparison, labels: tuple[str, str]) -> list[tuple[str, str, str, str]]:
    """Return the rows of wins, ties and losses, with the same columns as `_rows`."""
    rows = []
    names = (f"{labels[0]} higher", "equal", f"{labels[1]} higher")
    for name, share in zip(names, (comparison.wins, comparison.ties, comparison.losses)):
        interval = f"{share.share:.1%} ({share.interval[0]:.1%} to {share.interval[1]:.1%})"
        rows.append((f"score: {name}", f"{share.count:,} of {comparison.pairs:,}", "", interval))
    return rows


def _title(game: str, comparison: GameComparison) -> str:
    left_out = ", ".join(f"{count:,} {why}" for why, count in comparison.left_out.items())
    pairs = f"{game}: {comparison.pairs:,} pair{'' if comparison.pairs == 1 else 's'}"
    return f"{pairs}; left out: {left_out}" if left_out else pairs


def _note(labels: tuple[str, str]) -> str:
    return (
        f"Differences are {difference_name(*labels)}: positive if {labels[0]} is higher. Means are over pairs of "
        f"episodes with the same seed. Intervals are {LEVEL:.0%} confidence intervals: paired bootstrap "
        f"({RESAMPLES:,} resamples) for differences, Wilson for proportions."
    )


def distinct_labels(runs: Sequence[StoredRun]) -> tuple[str, ...]:
    """Label runs by their policies or, if these are not distinct, by their folders, or by numbers."""
    policies = tuple(run.config.policy.label for run in runs)
    folders = tuple(run.folder.folder.name for run in runs)
    numbers = tuple(f"{policy} ({number})" for number, policy in enumerate(policies, 1))
    return next(labels for labels in (policies, folders, numbers) if len({*labels}) == len(runs))
