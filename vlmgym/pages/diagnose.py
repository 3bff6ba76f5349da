"""`vlmgym diagnose RUN`: find out whether the wrong turns of a run are mistakes in seeing, in the rules, or in
planning.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from vlmgym.errors import UsageError
from vlmgym.evaluation.config import RunArgument, SavedRunOptions
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
from vlmgym.pages.document import app
from vlmgym.runs.files import json_bytes, read_model, replace_file, write_file
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import open_run
from vlmgym.terminal import make_console

NOTE = (
    "Best means as good as the oracle's move; legal means not compared with it. Intervals are 95% Wilson intervals, "
    "adjusted for the correlation of turns within episodes."
)
RESULTS = ("right", "best", "legal", "worse", "wrong", "illegal", "repeated", "unparsable", "not known")
"""Results of the stages, in the order in which the flow picture stacks them."""


@dataclass(frozen=True, kw_only=True)
class DiagnoseConfig(SavedRunOptions):
    """Options of `vlmgym diagnose`."""

    run: RunArgument
    """Run folder; gets diagnose.json and diagnose.html."""


def diagnose(config: DiagnoseConfig) -> Diagnosis:
    """Diagnose a run, print two tables per game, and write `diagnose.json` and `diagnose.html` into its folder."""
    run, console = open_run(config.run, config.data), make_console()
    diagnosed = list[list[TurnDiagnosis]]()
    with run.folder.reserved():
        calls = [(episode,) for episode in run.episodes]
        with config.pool(len(calls)) as workers:
            call_in_order(workers, diagnose_episode, calls, diagnosed.append, label="Diagnosing")
        turns: dict[str, list[list[TurnDiagnosis]]] = {game: [] for game in run.config.game_ids}
        for stored, episode in zip(run.episodes, diagnosed):
            turns.setdefault(stored.game, []).append(episode)
        games = {game: diagnose_game(episodes) for game, episodes in turns.items() if any(episodes)}
        diagnosis = Diagnosis(run=run.config, games=games)
        if not diagnosis.games:
            raise UsageError(f"{run.folder.folder} has no turns to diagnose")
        replace_file(run.folder.diagnosis, json_bytes(diagnosis))
        page = run.folder.diagnosis.with_suffix(".html")
        write_file(page, render_page(diagnosis, run.folder.report.name).encode())
    for game, result in diagnosis.games.items():
        console.print(size_of(game, result))
        for table in tables(result):
            console.print(table.rich())
    console.print(f"{NOTE}\npage    {page}\nnumbers {run.folder.diagnosis}", soft_wrap=True)
    return diagnosis


def read_diagnosis(folder: RunFolder) -> Diagnosis:
    """Read `diagnose.json`; raise `UsageError` if it is missing or not a diagnosis."""
    folder.check_links()
    return read_model(folder.diagnosis, Diagnosis, "write a diagnosis with vlmgym diagnose")


def size_of(game: str, diagnosis: GameDiagnosis) -> str:
    """Return the name of a game, and the numbers of its turns and episodes."""
    return f"{game}: {_count(diagnosis.turns, 'turn')} in {_count(diagnosis.episodes, 'episode')}"


def tables(diagnosis: GameDiagnosis) -> list[PageTable]:
    """Return the tables of a game: causes of wrong turns, rates, and broken rules if there are any."""
    causes = [(f"{cause}: {CAUSES[cause]}", *_cells(rate)) for cause, rate in diagnosis.causes.items() if rate.count]
    causes = causes or [("no turn went wrong", f"0 of {diagnosis.turns:,}", "0.0%")]
    rates = [(name, *_cells(rate)) for name, rate in diagnosis.rates.items()]
    rules = [(rule.rule, f"{rule.turns:,}", _shown(rule.shown, rule.turns)) for rule in diagnosis.rules]
    result = [
        PageTable("Causes of wrong turns", ("cause", "turns", "share"), causes),
        PageTable("Shares of turns", ("answers", "turns", "share"), rates),
        PageTable("Broken rules", ("feedback", "turns", "rules in the prompt"), rules),
    ]
    return [table for table in result if table.rows]


def _cells(rate: Rate) -> tuple[str, str]:
    low, high = rate.interval
    return f"{rate.count:,} of {rate.total:,}", f"{rate.share:.1%} ({low:.1%} to {high:.1%})"


def _shown(shown: int, turns: int) -> str:
    return "yes" if shown == turns else "no" if not shown else f"in {shown:,}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def render_page(diagnosis: Diagnosis, report: str) -> str:
    """Return the HTML; example turns are links to the episode viewer of the page `report` in the same folder."""
    games = [
        {
            "game": game,
            "size": size_of(game, result),
            "diagnosis": result,
            "tables": tables(result),
            "examples": [
                [
                    (f"seed {seed}, turn {turn}", f"{report}#{quote(game, safe='')}/{seed}/{turn}")
                    for seed, turn in turns
                ]
                for turns in (result.examples.get(cause, ()) for cause, rate in result.causes.items() if rate.count)
            ],
        }
        for game, result in diagnosis.games.items()
    ]
    title = f"Diagnosis of {run_title(diagnosis.run)}"
    return app("diagnosis", {"title": title, "note": NOTE, "stages": STAGES, "results": RESULTS, "games": games})
