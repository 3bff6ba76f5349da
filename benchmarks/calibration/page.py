"""Markdown page of a game: claims, tables, plots and method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.calibration.checks import FLAT, checks
from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.formatting import percent, written
from benchmarks.calibration.image_reader import HAZES
from benchmarks.calibration.measure import Calibration, Samples
from benchmarks.calibration.reader import HELD_OUT
from benchmarks.calibration.spec import Spec
from benchmarks.markdown import table, wrapped
from vlmgym.cli.games import format_value
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, CalibrationPlayer, Difficulty

PLAYERS: Mapping[CalibrationPlayer, str] = {
    "random": "Random (all actions)",
    "random-legal": "Random legal",
    "naive": "Naive",
    "oracle": "Oracle",
    "questions": "Questions",
}


def write_page(found: Calibration, command: str) -> str:
    """Write the page.

    Args:
        found: Measurements.
        command: Command that produced them.
    """
    spec = found.spec
    parts = [
        f"# {spec.title}: measured difficulty",
        f"The effect of every level, measured without a language model by\n\n    {command}",
        f"![Effect of the two difficulties]({spec.name}.png)",
        _claims(found),
        spec.notes,
        "## Reasoning",
        f"Criterion: **{spec.criterion.label}**, {spec.criterion.why}.",
        config_field_table(spec, "reasoning"),
        _plays(found),
        "## Perception",
        readers(spec, found.readings.haze),
        config_field_table(spec, "perception"),
        _reading(found),
        "## Method",
        method(spec, found.samples),
    ]
    return wrapped("\n\n".join(part for part in parts if part))


def _claims(found: Calibration) -> str:
    rows = ((one.claim, one.measured, "yes" if one.holds else "**no**") for one in checks(found))
    return table(("claim", "measured", "holds"), rows)


def _plays(found: Calibration) -> str:
    rows: list[tuple[str, list[str]]] = []
    for player in found.spec.turns:
        naive = found.spec.naive
        title = (
            f"{PLAYERS[player]}: {naive.description}" if player == "naive" and naive is not None else PLAYERS[player]
        )
        rows.append((f"**{title}**", [""] * len(LEVELS)))
        for measure in found.plays[3][player]:
            name = measure
            if measure == "effort" and found.spec.effort is not None:
                name = f"effort: {found.spec.effort.description}"
            values = [found.plays[level][player].get(measure) for level in LEVELS]
            rows.append((name, ["" if value is None else written(measure, value) for value in values]))
    return _table("reasoning", rows)


def _reading(found: Calibration) -> str:
    results = found.readings
    levels = [results.levels[level] for level in LEVELS]
    rows = [("level-1 reader", [percent(result.first) for result in levels])]
    if results.haze:
        rows.append(("level-1 reader, no haze", [percent(Estimate.of(result.clear)) for result in levels]))
    rows.append(("chance", [f"{100 / results.kinds[level]:.3g}%" for level in LEVELS]))
    rows.append(("fitted reader", [percent(result.fitted) for result in levels]))
    own = _table("perception", rows)
    shared = {
        difficulty: [percent(results.shared[difficulty][level]) for level in LEVELS] for difficulty in DIFFICULTIES
    }
    title = f"the {results.common} kinds common to all levels"
    return f"{own}\n\n" + _table(
        title, [(f"level-1 reader, by {difficulty}", values) for difficulty, values in shared.items()]
    )


def config_field_table(spec: Spec, difficulty: Difficulty) -> str:
    """Table of the config fields that a difficulty sets."""
    config: Any = type(spec.at()).Config
    games = {level: spec.at(**{difficulty: level}).config for level in LEVELS}
    rows = [
        (f"`{name}`", [format_value(getattr(games[level], name)) for level in LEVELS])
        for name in config.level_values(difficulty)
    ]
    return _table(difficulty, rows)


def readers(spec: Spec, haze: float) -> str:
    """Describe the classifiers that read the images, the first through haze with this standard deviation."""
    reading = spec.reading
    first = (
        f"Two readers see only pixels, with each {reading.unit} resized to 16 x 16. The **level-1 reader** picks the "
        "nearest mean image of perception level 1, among the kinds that occur at the tested level"
    )
    if reading.one_example:
        first += "; it knows one image per kind, from the level-1 board of the same seed"
    if haze:
        first += (
            f". It sees images with added noise (haze) whose standard deviation is {haze:g} times the pixel range: "
            "without haze, it reads all clean images correctly; with haze, its accuracy shows how distinct they are"
        )
    held_out = f"Every {HELD_OUT}th image of a kind is held out for the test"
    if reading.all_variants:
        held_out = f"Each different image of a kind is tested once: every {HELD_OUT}th of them is held out, in turn"
    return (
        f"{first}. The **fitted reader** is trained on the tested level, without haze (principal components and a "
        f"support vector machine). {held_out}; a kind with a single "
        "image is also tested on it. *Chance* is one over the number of kinds."
    )


def method(spec: Spec, samples: Samples) -> str:
    """Describe how the game was measured."""
    oracle = samples.episodes_of(spec, "oracle")
    limits = ", ".join(f"{player} {limit:,}" for player, limit in spec.turns.items() if limit > 1)
    cut_off = f", with a turn limit ({limits})" if limits else ""
    hazes = f", and each {spec.reading.unit} seen through {HAZES} haze samples" if spec.reading.haze != 0 else ""
    return f"""\
Play: {samples.episodes} episodes per player and level, {oracle} for the oracle{cut_off}. Values are means over \
episodes; shares of legal actions are first averaged within each episode. Perception levels are played with different \
seeds. Reading: {samples.images} test images and {samples.images} training images per level; all kinds of \
{spec.reading.unit} are equally frequent where the game allows. The effects of both difficulties on reading are \
compared on the kinds common to all levels, with equal weights and only these kinds as possible answers{hazes}.

All intervals are 95% intervals: Student's t for means over episodes and images, Wilson for shares of episodes and the \
fitted reader, normal for means over kinds, with the variance between images. A value without an interval did not \
vary. Intervals of differences follow Zou and Donner (2008), but perception levels are compared image by image, \
because the seed and haze of an image are the same at every level. A level is harder if the whole interval of its \
difference from the previous level is above 0; the four steps need not be equal. A difficulty does not affect the \
other's criterion if all intervals of differences from level 3 stay within {FLAT:.0%} of the other difficulty's effect \
from level 1 to 5."""


def _table(corner: str, rows: Iterable[tuple[str, list[str]]]) -> str:
    return table((corner, *map(str, LEVELS)), ((name, *values) for name, values in rows))
