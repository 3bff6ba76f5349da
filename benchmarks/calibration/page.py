"""Write the Markdown page of a game: claims, tables and plots. docs/difficulty.md describes the method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.calibration.checks import checks
from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.formatting import number, percent, written
from benchmarks.calibration.measure import Calibration, Samples
from benchmarks.calibration.reader import HELD_OUT
from benchmarks.calibration.spec import CalibrationPlayer, Spec
from benchmarks.markdown import table, wrapped
from vlmgym.cli.games import format_value
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Difficulty

PLAYERS: Mapping[CalibrationPlayer, str] = {
    "random": "Random (all actions)",
    "random-legal": "Random legal",
    "naive": "Naive",
    "oracle": "Oracle",
    "questions": "Questions",
}


def write_page(calibration: Calibration, command: str) -> str:
    """Return the text of the page.

    Args:
        found: Measurements.
        command: Command that produced them.
    """
    spec = calibration.spec
    parts = [
        f"# {spec.title}: measured difficulty",
        f"{method(spec, calibration.samples)}\n\n    {command}",
        f"![Effect of the two difficulties]({spec.name}.png)",
        _claims(calibration),
        spec.notes,
        "## Reasoning",
        f"Criterion: **{spec.criterion.label}**, {spec.criterion.why}.",
        config_field_table(spec, "reasoning"),
        _plays(calibration),
        "## Perception",
        readers(spec, calibration.readings.haze),
        config_field_table(spec, "perception"),
        _reading(calibration),
    ]
    return wrapped("\n\n".join(part for part in parts if part))


def _claims(calibration: Calibration) -> str:
    rows = ((check.claim, check.measured, "yes" if check.holds else "**no**") for check in checks(calibration))
    return table(("claim", "measured", "holds"), rows)


def _plays(calibration: Calibration) -> str:
    spec, rows = calibration.spec, list[tuple[str, list[str]]]()
    for player in spec.turns:
        title = PLAYERS[player]
        if player == "naive" and spec.naive is not None:
            title += f": {spec.naive.description}"
        measures: dict[tuple[str, ...], tuple[str, list[str]]] = {}  # by their means, to merge equal measures
        for measure in calibration.plays[3][player]:
            if measure == "legal actions" != spec.criterion.measure and "share legal" in calibration.plays[3][player]:
                continue  # the share says the same
            name = measure
            if measure == "effort" and spec.effort is not None:
                name = f"effort: {spec.effort.description}"
            values = [calibration.plays[level][player].get(measure) for level in LEVELS]
            means = tuple("" if value is None else number(value.mean) for value in values)
            cells = ["" if value is None else written(measure, value) for value in values]
            if means in measures:
                same, cells = measures[means]
                name = f"{same}, {name}"
            measures[means] = (name, cells)
        constant = _constant(measures.values())
        head = f"**{title}**" + (f" (always {constant})" if constant else "")
        rows += [(head, [""] * len(LEVELS)), *_varying(measures.values())]
    return _table("reasoning", rows)


def _constant(rows: Iterable[tuple[str, list[str]]]) -> str:
    """List the rows with the same value at all levels."""
    return "; ".join(f"{name} {values[0]}" for name, values in rows if len(set(values)) == 1)


def _varying(rows: Iterable[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _reading(calibration: Calibration) -> str:
    results = calibration.readings
    levels = [results.levels[level] for level in LEVELS]
    rows = [("level-1 reader", [percent(result.first) for result in levels])]
    if results.haze:
        rows.append(("level-1 reader, no haze", [percent(Estimate.of(result.clear)) for result in levels]))
    rows.append(("chance", [f"{100 / results.kinds[level]:.3g}%" for level in LEVELS]))
    rows.append(("fitted reader", [percent(result.fitted) for result in levels]))
    varying = _table("perception", _varying(rows))
    if constant := _constant(rows):
        varying += f"\n\nAt all levels: {constant}."
    shared = {
        difficulty: [percent(results.shared[difficulty][level]) for level in LEVELS] for difficulty in DIFFICULTIES
    }
    title = f"the {results.common} kinds common to all levels"
    return f"{varying}\n\n" + _table(
        title, [(f"level-1 reader, by {difficulty}", values) for difficulty, values in shared.items()]
    )


def config_field_table(spec: Spec, difficulty: Difficulty) -> str:
    """Tabulate the config fields that a difficulty sets."""
    config: Any = type(spec.at()).Config
    games = {level: spec.at(**{difficulty: level}).config for level in LEVELS}
    rows = [
        (f"`{name}`", [format_value(getattr(games[level], name)) for level in LEVELS])
        for name in config.level_values(difficulty)
    ]
    return _table(difficulty, rows)


def readers(spec: Spec, haze: float) -> str:
    """Say how the readers of a game differ; `haze` is the standard deviation of the noise for the level-1 reader."""
    reading, unit = spec.reading, spec.reading.unit
    noise = f" with haze of {haze:g} times the pixel range" if haze else ""
    knowledge = (
        f", and knows one {unit} per kind, from the level-1 board of the same seed" if reading.one_example else ""
    )
    tested = f"every {HELD_OUT}th image of a kind"
    if reading.all_variants:
        tested = f"each distinct image of a kind, by cross-validation with {HELD_OUT} folds"
    return (
        f"The [level-1 reader](../difficulty.md#reading) sees each {unit}{noise}{knowledge}. The fitted reader "
        f"is tested on {tested}."
    )


def method(spec: Spec, samples: Samples) -> str:
    """Describe how much of a game was measured."""
    oracle = samples.episodes_of(spec, "oracle")
    fewer = f" ({oracle} of the oracle)" if oracle != samples.episodes else ""
    limits = {player: limit for player, limit in spec.turns.items() if limit > 1}
    turns = ", ".join(f"{limit:,} ({player})" for player, limit in limits.items())
    if len(set(limits.values())) == 1:
        turns = f"{max(limits.values()):,}"
    cut_off = f" of at most {turns} turns" if turns else ""
    return (
        f"{samples.episodes} episodes{fewer}{cut_off} per player and level, and {samples.images} test images per "
        "level, measured [without a language model](../difficulty.md) by this command:"
    )


def _table(corner: str, rows: Iterable[tuple[str, list[str]]]) -> str:
    return table((corner, *map(str, LEVELS)), ((name, *values) for name, values in rows))
