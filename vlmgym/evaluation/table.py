"""`vlmgym table RUN...`: print the mean scores of several runs as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal, get_args

from vlmgym.errors import UsageError, one_line, short_repr
from vlmgym.evaluation.config import RunsOptions
from vlmgym.evaluation.saved_runs import SavedRun, csv_lines, read_runs
from vlmgym.evaluation.summary import updated_summary
from vlmgym.evaluation.tables import control_note, vlmgym_version
from vlmgym.runs.record import RunSummary, Summary, changes
from vlmgym.statistics import LEVEL, paired_difference

Axis = Literal["model", "run", "game", "perception", "reasoning", "observation", "images", "skin"]
CONTESTANTS = ("model", "run", "observation", "images", "skin")
"""Axes along which the same episodes are compared; along the others, the task differs."""
MISSING = "n/a"
"""Cell without a result."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(RunsOptions):
    """Options of `vlmgym table`."""

    format: Literal["md", "csv", "latex", "json"] = "md"
    """Markdown, or LaTeX for booktabs; csv and json have a row per cell, for programs."""
    rows: tuple[Axis, ...] = ("model",)
    """Settings that have a row for each value; the runs must be equal in all settings that --rows and --columns do not
    name."""
    columns: tuple[Axis, ...] = ("game",)
    """Settings that have a column for each value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        axes = (*self.rows, *self.columns)
        if len(set(axes)) < len(axes):
            raise UsageError("rows and columns must be different")
        if not self.rows or not self.columns:
            raise UsageError(f"rows and columns need at least one of {', '.join(get_args(Axis))}")


@dataclass(frozen=True)
class Cell:
    """Results of one run on one game.

    Attributes:
        run: The run.
        game: Id of the game.
        model: Name of the model or policy.
        summary: Summary of the results.
    """

    run: SavedRun
    game: str
    model: str
    summary: Summary

    @cached_property
    def scores(self) -> dict[int, float]:
        """Score of each episode, by seed."""
        return {seed: score for (game, seed), score in self.run.stored.scores.items() if game == self.game}

    @property
    def mean(self) -> float:
        """Mean score; -inf without results."""
        return -math.inf if self.summary.score_mean is None else self.summary.score_mean

    def on(self, axes: Sequence[Axis]) -> tuple[str, ...]:
        """Return the labels of this cell along axes."""
        facts = self.run.facts(self.game) | {"model": self.model, "run": self.run.folder.folder.name}
        words = {"perception": "perception ", "reasoning": "reasoning ", "images": "images "}
        return tuple(f"{words.get(axis, '')}{one_line(str(facts[axis]))}" for axis in axes)


class ResultsTable:
    """Mean scores of runs by row and column, with the settings that all runs share.

    Attributes:
        rows: Labels of the rows.
        columns: Labels of the columns.
        cells: Results by row and column.
        best: Cells that are significantly better than all other cells of the same task.
        notes: Sentences about settings, intervals, the meaning of bold, and missing results.
    """

    def __init__(self, runs: Sequence[SavedRun], rows: Sequence[Axis], columns: Sequence[Axis]) -> None:
        """Read the results.

        Raises:
            UsageError: The runs differ in a setting that is not an axis, or two results belong in the same cell.
        """
        summaries = [updated_summary(run.stored) for run in runs]
        names = _model_names(runs)
        self.cells: dict[tuple[tuple[str, ...], tuple[str, ...]], Cell] = {}
        for run, summary, name in zip(runs, summaries, names):
            for game, results in summary.games.items():
                cell = Cell(run, game, name, results)
                key = cell.on(rows), cell.on(columns)
                if (other := self.cells.setdefault(key, cell)) is not cell:
                    folders = " and ".join(str(c.run.folder.folder) for c in (other, cell))
                    raise UsageError(f"two results for {', '.join(sum(key, ()))}: {folders}; add run to --rows")
        axes = (*rows, *columns)
        _check_equal([*self.cells.values()], axes)
        self.rows = [*dict.fromkeys(row for row, _ in self.cells)]
        self.columns = [*dict.fromkeys(column for _, column in self.cells)]
        tasks: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.cells.values():
            task = cell.on([axis for axis in get_args(Axis) if axis not in CONTESTANTS])
            tasks.setdefault(task, []).append(cell)
        self.best = [best for cells in tasks.values() if (best := _best(cells)) is not None]
        self.notes = _notes(runs, summaries, axes)

    def text(self, bold: Callable[[str], str], escape: Callable[[str], str], minus: str = "-") -> list[list[str]]:
        """Return the cells as words, each row after its labels; `escape` labels, and make best means `bold`."""
        lines = []
        for row in self.rows:
            words = [*map(escape, row)]
            for column in self.columns:
                cell = self.cells.get((row, column))
                mean, interval = (MISSING, "") if cell is None else _mean(cell.summary)
                mean = bold(mean) if cell in self.best else mean
                words.append(f"{mean}{interval}".replace("-", minus))
            lines.append(words)
        return lines

    def records(self) -> list[dict[str, Any]]:
        """Return a row of numbers for each cell."""
        return [
            {
                **cell.run.facts(cell.game),
                "seed": cell.run.config.seed,
                "episodes": cell.run.config.episodes_of(cell.game),
                "results": cell.summary.episodes,
                "mean": cell.summary.score_mean,
                "low": cell.summary.score_ci and cell.summary.score_ci[0],
                "high": cell.summary.score_ci and cell.summary.score_ci[1],
                "best": cell in self.best,
            }
            for cell in self.cells.values()
        ]


def table(config: TableConfig) -> None:
    """Print a table of runs."""
    results = ResultsTable(read_runs(config.runs, data=config.data), config.rows, config.columns)
    formats: dict[str, Callable[[ResultsTable], str]] = {
        "md": markdown,
        "latex": latex,
        "csv": lambda results: csv_lines(results.records()),
        "json": lambda results: json.dumps({"notes": results.notes, "results": results.records()}, indent=1) + "\n",
    }
    print(formats[config.format](results), end="")


def markdown(results: ResultsTable) -> str:
    """Format a table as GitHub-flavoured Markdown, with its notes below."""

    def escape(text: str) -> str:
        return re.sub(r"([\\`*_\[\]<>|~&#$])", r"\\\1", text)

    heads = [*[""] * len(results.rows[0]), *(escape(", ".join(column)) for column in results.columns)]
    rules = ["---"] * len(results.rows[0]) + ["---:"] * len(results.columns)
    lines = [heads, rules, *results.text(lambda mean: f"**{mean}**", escape)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{table}\n{' '.join(map(escape, results.notes))}\n"


LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "[": "{[}",  # would be an option of the command at the end of the row before
    "]": "{]}",
    **{character: f"\\{character}" for character in "{}$&%#_"},
}


def latex(results: ResultsTable) -> str:
    """Format a table for LaTeX with the package booktabs, with its notes as the caption."""

    def escape(text: str) -> str:
        escaped = "".join(LATEX.get(character, character) for character in text)
        return re.sub("-(?=-)", "-{}", escaped)  # otherwise two hyphens become a dash

    labels = len(results.rows[0])
    heads = [*[""] * labels, *(escape(", ".join(column)) for column in results.columns)]
    body = results.text(lambda mean: rf"\textbf{{{mean}}}", escape, minus="$-$")
    lines = [" & ".join(line) + r" \\" for line in [heads, *body]]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{'l' * labels}{'r' * len(results.columns)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{' '.join(map(escape, results.notes))}}}",
            r"\end{table}",
            "",
        ]
    )


def _mean(summary: Summary) -> tuple[str, str]:
    """Format a mean and its interval, with two significant digits of the interval's half-width."""
    if summary.score_mean is None:
        return MISSING, ""
    if summary.score_ci is None:
        return f"{summary.score_mean:,.4g}" if abs(summary.score_mean) < 1e4 else f"{summary.score_mean:,.0f}", ""
    low, high = summary.score_ci
    digits = max(0, 1 - math.floor(math.log10((high - low) / 2)))
    words = [f"{round(value, digits) + 0.0:,.{digits}f}" for value in (summary.score_mean, low, high)]  # no -0
    return words[0], f" [{words[1]}, {words[2]}]"


def _model_names(runs: Sequence[SavedRun]) -> list[str]:
    """Name the model of each run without its folder, unless different models then have the same name."""
    policies = [run.config.policy for run in runs]
    names = [PurePath(policy.model or policy.name).name for policy in policies]
    distinct = {(name, policy.name, policy.model) for name, policy in zip(names, policies)}
    clashes = {name for name in names if sum(name == other for other, *_ in distinct) > 1}
    return [policy.label if name in clashes else name for name, policy in zip(names, policies)]


def _check_equal(cells: Sequence[Cell], axes: Sequence[Axis]) -> None:
    """Raise `UsageError` if the results differ in settings that are not axes, so that they cannot share a table."""
    for cell in cells:
        if cell.run.config.curriculum is not None:
            raise UsageError(
                f"{cell.run.folder.folder} plays a curriculum, whose stages differ in difficulty: use vlmgym compare, "
                "which pairs episodes of the same stage"
            )
    shared = [axis for axis in ("perception", "reasoning", "observation", "images") if axis not in axes]

    def settings(cell: Cell) -> dict[str, Any]:
        config, facts = cell.run.config, cell.run.facts(cell.game)
        prompts = {name: value for name, value in asdict(config.prompts).items() if name not in get_args(Axis)}
        numbers = {name: getattr(config, name) for name in ("max_turns", "seed", "episodes")}
        return numbers | {axis: facts[axis] for axis in shared} | prompts

    def game_config(cell: Cell) -> dict[str, Any]:
        return next(game.config for game in cell.run.config.games if game.id == cell.game)

    first_of_task: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        first = first_of_task.setdefault(cell.on(("game", "perception", "reasoning")), cell)
        pairs = ((cells[0], settings), (first, game_config))
        for other, facts in pairs:
            different = [*changes(facts(other), facts(cell))]
            if different:
                name, a, b = different[0]
                where = [f"{short_repr(v)} in {c.run.folder.folder.name}" for v, c in ((a, other), (b, cell))]
                how = f"; --rows model {name} shows both" if name in get_args(Axis) else ""
                raise UsageError(f"one table cannot mix runs that differ in {name}: {where[0]}, {where[1]}{how}")


def _best(cells: Sequence[Cell]) -> Cell | None:
    """Return the result with the highest mean, if its paired difference from every other is significant."""
    best = max(cells, key=lambda cell: cell.mean)
    for other in cells:
        if other is not best:
            seeds = [seed for seed in best.scores if seed in other.scores]
            pairs = [[cell.scores[seed] for seed in seeds] for cell in (best, other)]
            interval = paired_difference(*pairs).interval if seeds else None
            if interval is None or interval[0] <= 0:
                return None
    return best if len(cells) > 1 else None


def _notes(runs: Sequence[SavedRun], summaries: Sequence[RunSummary], axes: Sequence[Axis]) -> list[str]:
    """Describe what the results share, and what is missing."""
    config, facts = runs[0].config, runs[0].facts("")
    shared = [f"{axis} {facts[axis]}" for axis in ("perception", "reasoning", "observation") if axis not in axes]
    seeds = f"seeds {config.seed} to {config.seed + config.episodes - 1}"
    notes = [
        f"Mean scores with {LEVEL:.0%} confidence intervals; {', '.join([*shared, seeds])}, at most "
        f"{config.max_turns:,} turns.",
        f"Bold: the highest mean, if each paired difference from the others is significant (bootstrap, {LEVEL:.0%}).",
    ]
    if "images" not in axes and (control := control_note(config.prompts)):
        notes.append(control)
    if len(played := {vlmgym_version(run.config) for run in runs}) > 1:
        notes.append(f"Played with {' and '.join(sorted(played))}.")
    games = [summary for run in summaries for summary in run.games.values()]
    if missing := sum(sum(summary.unfinished.values()) for summary in games):
        total = missing + sum(summary.episodes for summary in games)
        notes.append(f"{missing:,} of {total:,} episodes have no result, which may bias means.")
    return notes
