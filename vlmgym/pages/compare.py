"""`vlmgym compare RUN_A RUN_B`: tables of a paired comparison, and a page with both runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
    labels = config.labels or _labels(first, second)
    notes = check_comparable(first.config, second.config, labels)
    games = compare_games(first.read(), second.read(), labels)
    if not games:
        raise UsageError(f"{labels[0]} and {labels[1]} have no results with the same game and seed")
    common = {*first.config.game_ids} & {*second.config.game_ids}
    notes += [f"{game} is left out: no seed has a result in both runs" for game in sorted(common - set(games))]
    if blind := games_without_sight(first.config, second.config, games):
        notes.insert(0, f"{', '.join(blind)}: the score shows no sight, because grey images do not lower it")
    comparison = Comparison(labels=labels, runs=(first.config, second.config), notes=tuple(notes), games=games)
    with output_folder(folder, numbers.name):
        replace_file(numbers, json_bytes(comparison))
    console, progress_console = make_console(), make_console(stderr=True)
    for note in notes:
        console.print(f"note: {note}")
    note = " ".join([_note(labels), *(f"Note: {note}." for note in notes)])
    heads = ("mean of", *labels, f"{difference_name(*labels)} ({LEVEL:.0%})")
    tables = [
        PageTable(_title(game, result), heads, [*_rows(result), *_shares(result, labels)], note)
        for game, result in games.items()
    ]
    for table in tables:
        console.print(table.rich())
    console.print(_note(labels))
    if config.page:
        runs = [LabelledRun(label, run, updated_summary(run)) for label, run in zip(labels, (first, second))]
        title = f"{labels[0]} vs {labels[1]}"
        with config.pool(len(first.episodes) + len(second.episodes)) as workers:
            write_page(page, runs, title=title, workers=workers, tables=tables, console=progress_console)
        console.print(f"report  {page}", soft_wrap=True)
    console.print(f"numbers {numbers}", soft_wrap=True)
    return comparison


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


def _labels(first: StoredRun, second: StoredRun) -> tuple[str, str]:
    policies = first.config.policy.label, second.config.policy.label
    folders = first.folder.folder.name, second.folder.folder.name
    return next(labels for labels in (policies, folders, ("first", "second")) if labels[0] != labels[1])
