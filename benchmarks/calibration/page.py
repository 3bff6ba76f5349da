"""Write the Markdown page of a game: claims, tables, plots and method."""

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
    """Return the text of the page.

    Args:
        found: Measurements.
        command: Command that produced them.
    """
    spec = found.spec
    parts = [
        f"# {spec.title}: measured difficulty",
        "How difficulty levels affect play and the reading of images. Measured without a language model by this "
        f"command:\n\n    {command}",
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
    """Tabulate the config fields that a difficulty sets."""
    config: Any = type(spec.at()).Config
    games = {level: spec.at(**{difficulty: level}).config for level in LEVELS}
    rows = [
        (f"`{name}`", [format_value(getattr(games[level], name)) for level in LEVELS])
        for name in config.level_values(difficulty)
    ]
    return _table(difficulty, rows)


def readers(spec: Spec, haze: float) -> str:
    """Describe the readers; `haze` is the standard deviation of the noise added for the level-1 reader."""
    reading, unit = spec.reading, spec.reading.unit
    if reading.one_example:
        first = f"picks the kind of the nearest {unit} on the level-1 board of the same seed, with one image per kind"
    else:
        first = (
            "knows the mean image of each kind at perception level 1 and picks the nearest one, among the kinds that "
            "occur at the tested level"
        )
    if haze:
        first += (
            f". It sees images with added noise (haze) whose standard deviation is {haze:g} times the pixel range. "
            "Without haze, it reads all or nearly all images of level 1 correctly; with haze, its accuracy shows how "
            "different the kinds look"
        )
    held_out = (
        f"is tested on every {HELD_OUT}th image of a kind, which it is not trained on. If a kind has a single image, "
        "the reader is trained and tested on this image"
    )
    if reading.all_variants:
        held_out = (
            f"is tested once on each distinct image of a kind, by cross-validation with {HELD_OUT} folds. If a kind "
            "has a single image, the reader is trained and tested on this image"
        )
    return (
        f"Two classifiers read the images from pixels alone, with each {unit} resized to 16 x 16. The **level-1 "
        f"reader** {first}. The **fitted reader** (principal components and a support vector machine) is trained on "
        f"the tested level without haze. It {held_out}. *Chance* is one over the number of kinds."
    )


def method(spec: Spec, samples: Samples) -> str:
    """Describe how the game was measured."""
    oracle = samples.episodes_of(spec, "oracle")
    limits = ", ".join(f"{player} {limit:,}" for player, limit in spec.turns.items() if limit > 1)
    cut_off = f", with a limit of turns ({limits})" if limits else ""
    hazes = f"; each {spec.reading.unit} is read with {HAZES} samples of haze" if spec.reading.haze != 0 else ""
    return f"""\
Play: {samples.episodes} episodes per player and level, {oracle} for the oracle{cut_off}. Values are means over \
episodes; the share of legal actions is first averaged over the turns of an episode. Each perception level is played \
with its own seeds.

Reading: {samples.images} test images per level, and as many training images. All kinds of {spec.reading.unit} are \
equally frequent where the game allows it. To compare the effects of perception and reasoning on reading, accuracy is \
averaged over the kinds common to all levels, with equal weights, and only these kinds are possible answers{hazes}.

All intervals are 95% intervals: Student's t for means over episodes and over images, Wilson's for shares of episodes \
and for the fitted reader, and normal for means over kinds, with the variance between images. A value without an \
interval was the same in all episodes or images. Intervals of differences follow Zou and Donner (2008), except that \
perception levels are compared image by image, because each image has the same seed and haze at every level.

A level is harder than the previous one if the whole interval of their difference is above 0. The steps need not be \
equal; *each step at least* is the smallest lower end of their intervals. A difficulty does not affect the other one's \
criterion if, at all of its levels, the interval of the difference from level 3 stays within {FLAT:.0%} of the other \
difficulty's effect from level 1 to 5; *at most* is the largest end of these intervals."""


def _table(corner: str, rows: Iterable[tuple[str, list[str]]]) -> str:
    return table((corner, *map(str, LEVELS)), ((name, *values) for name, values in rows))
