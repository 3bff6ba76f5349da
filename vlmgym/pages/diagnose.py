"""`vlmgym diagnose RUN`: where the turns of a saved run went wrong, as tables and a page with a flow picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import tyro
from pydantic import ValidationError

from vlmgym import __version__
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.evaluation.config import SavedRunOptions
from vlmgym.evaluation.diagnose import (
    CAUSES,
    STAGES,
    Diagnosis,
    GameDiagnosis,
    Rate,
    TurnDiagnosis,
    diagnose_episode,
    diagnose_game,
)
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.tables import PageTable, run_title
from vlmgym.pages.document import document
from vlmgym.runs.files import json_bytes, replace_file, write_file
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import open_run
from vlmgym.terminal import make_console

NOTE = (
    "Best means as good as the oracle's move; legal means not compared with it. Intervals are 95% Wilson intervals, "
    "adjusted for the correlation of turns within episodes."
)
RESULTS = ("right", "best", "legal", "worse", "wrong", "illegal", "repeated", "unparsable", "not known", "not stated")
"""Results of the stages, in the order in which the flow picture stacks them."""


@dataclass(frozen=True, kw_only=True)
class DiagnoseConfig(SavedRunOptions):
    """Options of `vlmgym diagnose`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder; gets diagnose.json and diagnose.html."""


def diagnose(config: DiagnoseConfig) -> Diagnosis:
    """Diagnose a run, print two tables per game, and write `diagnose.json` and `diagnose.html` into its folder."""
    run, console = open_run(config.run, config.data), make_console()
    turns: dict[str, list[list[TurnDiagnosis]]] = {game: [] for game in run.config.game_ids}
    games = iter([episode.game for episode in run.episodes])

    def take(episode: list[TurnDiagnosis]) -> None:
        turns.setdefault(next(games), []).append(episode)

    with run.folder.reserved():
        calls = [(episode,) for episode in run.episodes]
        with config.pool(len(calls)) as workers:
            call_in_order(workers, diagnose_episode, calls, take, label="Diagnosing", console=make_console(stderr=True))
        diagnosis = Diagnosis(
            run=run.config, games={game: diagnose_game(episodes) for game, episodes in turns.items() if any(episodes)}
        )
        if not diagnosis.games:
            raise UsageError(f"{run.folder.folder} has no turns to diagnose")
        replace_file(run.folder.diagnosis, json_bytes(diagnosis))
        page = run.folder.diagnosis.with_suffix(".html")
        write_file(page, render_page(diagnosis, run.folder.report.name).encode())
    for game, result in diagnosis.games.items():
        for table in tables(game, result):
            console.print(table.rich())
    console.print(f"{NOTE}\npage    {page}\nnumbers {run.folder.diagnosis}", soft_wrap=True)
    return diagnosis


def read_diagnosis(folder: RunFolder) -> Diagnosis:
    """Read `diagnose.json`; raise `UsageError` if it is missing or not a diagnosis."""
    folder.check_links()
    try:
        return Diagnosis.model_validate_json(folder.diagnosis.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {folder.diagnosis}: {error.strerror}; write it with vlmgym diagnose") from None
    except ValidationError as error:
        raise UsageError(f"{folder.diagnosis} cannot be read: {describe_validation_error(error)}") from None


def tables(game: str, diagnosis: GameDiagnosis) -> list[PageTable]:
    """Return the tables of a game: causes of wrong turns, rates, and broken rules if there are any."""
    size = f"{game}: {_count(diagnosis.turns, 'turn')} in {_count(diagnosis.episodes, 'episode')}"
    causes = [(f"{cause}: {CAUSES[cause]}", *_cells(rate)) for cause, rate in diagnosis.causes.items() if rate.count]
    causes = causes or [("no turn went wrong", f"0 of {diagnosis.turns:,}", "0.0%")]
    result = [
        PageTable(f"{size}; causes of wrong turns", ("cause", "turns", "share"), causes),
        PageTable(
            "Shares of turns",
            ("answers", "turns", "share"),
            [(name, *_cells(rate)) for name, rate in diagnosis.rates.items()],
        ),
    ]
    if diagnosis.rules:
        rows = [(rule.rule, f"{rule.turns:,}", _shown(rule.shown, rule.turns)) for rule in diagnosis.rules]
        result.append(PageTable("Broken rules", ("feedback", "turns", "rules in the prompt"), rows))
    return result


def _cells(rate: Rate) -> tuple[str, str]:
    low, high = rate.interval
    return f"{rate.count:,} of {rate.total:,}", f"{rate.share:.1%} ({low:.1%} to {high:.1%})"


def _shown(shown: int, turns: int) -> str:
    return "yes" if shown == turns else "no" if not shown else f"in {shown:,}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# The page -------------------------------------------------------------------------------------------------------------


def render_page(diagnosis: Diagnosis, report: str) -> str:
    """Build the page; example turns are links to the episode viewer of the page `report` in the same folder."""
    title = f"Diagnosis of {run_title(diagnosis.run)}"
    sections = "".join(_section(game, result, report) for game, result in diagnosis.games.items())
    body = f"""
<header id="head"><p class="maker">vlmgym</p><h1>{escape(title)}</h1>
<p class="lead">Each answer is judged on the board that the response states and on the true board. The first stage that
explains a wrong answer is its cause.</p></header>
<main>{sections}</main>
<footer><p>{escape(NOTE)} Generated by vlmgym {__version__} from the records of the run.</p></footer>"""
    return document(title, "app", body)


def _section(game: str, diagnosis: GameDiagnosis, report: str) -> str:
    first, *others = tables(game, diagnosis)
    size, _, title = first.title.partition("; ")
    causes = replace(first, title=title.capitalize())
    wrong = [cause for cause, rate in diagnosis.causes.items() if rate.count]
    links = [_links(game, diagnosis.examples.get(cause, ()), report) for cause in wrong] or [""]
    return f"""
<section><h2>{escape(size)}</h2>
<div class="scrolled flow" role="region" aria-label="Flow of {escape(game)}" tabindex="0">{flow(diagnosis)}</div>
{_table(game, causes, ("examples", links))}{"".join(_table(game, table) for table in others)}</section>"""


def _table(game: str, table: PageTable, more: tuple[str, Sequence[str]] | None = None) -> str:
    """Write a table as HTML; `more` is a head and the HTML of the cells of one more column."""
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in [*table.columns, *(more or ())[:1]])
    body = ""
    for number, (name, *cells) in enumerate(table.rows):
        text = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body += f"<tr><th scope=row>{escape(name)}</th>{text}{f'<td>{more[1][number]}</td>' if more else ''}</tr>"
    title = escape(table.title)
    return (
        f"<h3>{title}</h3>"
        f'<div class="scrolled" role="region" aria-label="{title} of {escape(game)}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _links(game: str, examples: Sequence[tuple[int, int]], report: str) -> str:
    return ", ".join(
        f'<a href="{report}#{quote(game, safe="")}/{seed}/{turn}">seed {seed}, turn {turn}</a>'
        for seed, turn in examples
    )


WIDTH, HEIGHT, TOP, BAR, GAP = 1000, 300, 30, 12, 20
"""Size of the flow picture, height of its head, width of the bars and space between them, in units of the SVG."""


def flow(diagnosis: GameDiagnosis) -> str:
    """Draw the results of each stage as bars, and the turns between two stages as bands, in SVG."""
    columns = [_stacked(diagnosis, stage) for stage in range(len(STAGES))]
    tallest = max(map(len, columns))
    scale = (HEIGHT - GAP * (tallest - 1)) / diagnosis.turns
    left = [stage * (WIDTH - 190) / (len(STAGES) - 1) for stage in range(len(STAGES))]
    tops = [dict(_tops(column, scale)) for column in columns]
    drawn = []
    for stage, (first, second) in enumerate(pairwise(tops)):
        bands = Counter[tuple[str, str]]()
        for path in diagnosis.paths:
            bands[path.stages[stage], path.stages[stage + 1]] += path.turns
        starts, ends = dict(first), dict(second)
        for source in first:
            for target in second:
                if turns := bands[source, target]:
                    label = f"{STAGES[stage]} {source}, {STAGES[stage + 1]} {target}: {_count(turns, 'turn')}"
                    drawn.append(
                        _band(left[stage] + BAR, starts[source], left[stage + 1], ends[target], turns * scale, target)
                        + f"<title>{escape(label)}</title></path>"
                    )
                    starts[source] += turns * scale
                    ends[target] += turns * scale
    for stage, column in enumerate(columns):
        x = left[stage]
        drawn.append(f'<text class="stage-name" x="{x:.1f}" y="12">{STAGES[stage]}</text>')
        for name, turns in column.items():
            y, height = tops[stage][name], turns * scale
            share = f"{turns / diagnosis.turns:.1%}"
            drawn.append(
                f'<rect class="{_class(name)}" x="{x:.1f}" y="{y:.1f}" width="{BAR}" height="{max(height, 1):.1f}"/>'
                f'<text x="{x + BAR + 6:.1f}" y="{y + height / 2 + 4:.1f}">{name} {share}</text>'
            )
    words = "; ".join(
        f"{stage}: {', '.join(f'{name} {turns}' for name, turns in column.items())}"
        for stage, column in zip(STAGES, columns)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + TOP + 10}" role="img" aria-label="{escape(words)}">{"".join(drawn)}</svg>'
    )


def _stacked(diagnosis: GameDiagnosis, stage: int) -> dict[str, int]:
    """Count the turns with each result of a stage, in the order of `RESULTS`."""
    counts = Counter[str]()
    for path in diagnosis.paths:
        counts[path.stages[stage]] += path.turns
    return {name: counts[name] for name in RESULTS if counts[name]}


def _tops(column: Mapping[str, int], scale: float) -> Iterator[tuple[str, float]]:
    """Yield each result of a stage with the top of its bar."""
    y = float(TOP)
    for name, turns in column.items():
        yield name, y
        y += turns * scale + GAP


def _band(x1: float, y1: float, x2: float, y2: float, height: float, target: str) -> str:
    """Open the path of a band of this height between two bars."""
    middle = (x1 + x2) / 2
    upper = f"M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    low1, low2 = y1 + height, y2 + height
    lower = f"V{low2:.1f}C{middle:.1f} {low2:.1f} {middle:.1f} {low1:.1f} {x1:.1f} {low1:.1f}Z"
    return f'<path class="{_class(target)}" d="{upper}{lower}">'


def _class(name: str) -> str:
    return name.replace(" ", "-")
