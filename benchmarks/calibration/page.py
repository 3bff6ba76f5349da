"""The page of a game as Markdown: claims with their measurements, tables, plots and methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.calibration.checks import FLAT, checks
from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.formatting import percent, written
from benchmarks.calibration.image_reader import HAZES
from benchmarks.calibration.measure import Calibration, Samples
from benchmarks.calibration.reader import HELD_OUT
from benchmarks.calibration.spec import Player, Spec
from vlmgym.cli.games import value_in_words
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS, Dial

PLAYERS: Mapping[Player, str] = {
    "random": "Random play, from all actions",
    "random-legal": "Random legal play",
    "naive": "Naive player",
    "oracle": "Oracle",
    "questions": "Questions",
}


def write_page(found: Calibration, command: str) -> str:
    """The page as Markdown.

    Args:
        found: What was measured.
        command: The command that measured it.
    """
    spec = found.spec
    parts = [
        f"# {spec.title}: how hard the levels are",
        f"Measured without a language model, and written by\n\n    {command}",
        f"![What the two difficulties do]({spec.name}.png)",
        _claims(found),
        spec.notes,
        "## Reasoning",
        f"Judged by the **{spec.criterion.label}**: {spec.criterion.why}.",
        config_field_table(spec, "reasoning"),
        _plays(found),
        "## Perception",
        readers(spec),
        config_field_table(spec, "perception"),
        _reading(found),
        "## How it is measured",
        method(spec, found.samples),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _claims(found: Calibration) -> str:
    lines = [f"| {one.words} | {one.measured} | {'yes' if one.holds else '**no**'} |" for one in checks(found)]
    return "\n".join(["| claim | measured | holds |", "|---|---|---|", *lines])


def _plays(found: Calibration) -> str:
    rows: list[tuple[str, list[str]]] = []
    for player in found.spec.turns:
        naive = found.spec.naive
        title = f"{PLAYERS[player]}: {naive.words}" if player == "naive" and naive is not None else PLAYERS[player]
        rows.append((f"**{title}**", [""] * len(LEVELS)))
        for measure in found.plays[3][player]:
            name = measure
            if measure == "effort" and found.spec.effort is not None:
                name = f"effort: {found.spec.effort.words}"
            values = [found.plays[level][player].get(measure) for level in LEVELS]
            rows.append((name, ["" if value is None else written(measure, value) for value in values]))
    return _table("reasoning", rows)


def _reading(found: Calibration) -> str:
    sighting = found.sighting
    readings = [sighting.levels[level] for level in LEVELS]
    rows = [("reader of level 1", [percent(reading.first) for reading in readings])]
    if found.spec.sight.haze:
        rows.append(("the same, clear eyes", [percent(Estimate.of(reading.clear)) for reading in readings]))
    rows.append(("a guess", [f"{100 / sighting.kinds[level]:.3g}%" for level in LEVELS]))
    rows.append(("reader fitted to the level", [percent(reading.fitted) for reading in readings]))
    own = _table("perception", rows)
    alike = {dial: [percent(sighting.alike[dial][level]) for level in LEVELS] for dial in DIFFICULTIES}
    title = f"the {sighting.common} kinds that all levels show"
    return f"{own}\n\n" + _table(title, [(f"by {dial}", values) for dial, values in alike.items()])


def config_field_table(spec: Spec, dial: Dial) -> str:
    """The table of a dial as far as it sets anything, from the game's configuration."""
    config: Any = type(spec.at()).Config
    table = config.levels.get(dial, {})
    names = list(dict.fromkeys(name for level in LEVELS for name in table.get(level, {})))
    games = {level: spec.at(**{dial: level}).config for level in LEVELS}
    rows = [(f"`{name}`", [value_in_words(getattr(games[level], name)) for level in LEVELS]) for name in names]
    return _table(dial, rows)


def readers(spec: Spec) -> str:
    """Describe the classifiers that read the images."""
    sight = spec.sight
    first = (
        f"Two readers see pixels only, each {sight.words} brought to 16 x 16. The **reader of level 1** names each "
        "by the nearest mean image of those it knows from level 1, among the kinds that this level has"
    )
    if sight.one_example:
        first += ", of the board of the same seed: one image of each kind"
    if sight.haze:
        first += (
            f". It looks through haze, noise with a standard deviation of {sight.haze:g} of full scale: clean images "
            "are all alike to perfect eyes, and how much of them is lost in haze tells which has least to spare"
        )
    return (
        f"{first}. The **fitted reader** has clear eyes and learned from the level itself (principal components and a "
        f"support vector machine); every {HELD_OUT}th image of a kind is kept from it for the test, but a kind with "
        "one image only is tested on that one. *A guess* is one over the number of kinds."
    )


def method(spec: Spec, samples: Samples) -> str:
    """Describe how the game was measured."""
    oracle = samples.episodes_of(spec, "oracle")
    limits = ", ".join(f"{player} {limit:,}" for player, limit in spec.turns.items() if limit > 1)
    cut_off = f", cut off after so many turns: {limits}" if limits else ""
    hazes = f", and each cut-out seen through {HAZES} hazes" if spec.sight.haze else ""
    return f"""\
Play: {samples.episodes} episodes of each player at each level, {oracle} of the oracle{cut_off}. Values are means over \
episodes; an episode's share of legal actions is the mean over its positions. At other levels of perception the \
episodes have other seeds. Reading: {samples.images} images at each level for the test, as many to learn from; \
every kind of {spec.sight.words} is as likely as the others where the game allows. What the two difficulties do to \
reading \
is compared on the kinds alone that all levels of both show, each counted alike, with these alone to choose \
from{hazes}: where the kinds are fewer than a level shows, more of them is read.

All intervals are 95%: Student's for means over episodes and over images, Wilson's for shares of episodes and for \
the fitted reader, the normal one for means over kinds, from what differs between images; a value without one was \
the same each time. Those of differences follow from them (Zou and Donner, 2008); but levels of perception are \
compared image by image, as an image has the same seed and the same haze at every level. A level is harder if \
the interval of its difference to the one before is above 0 altogether, each of the four steps by itself; steps are \
not equally large. One dial leaves what the other is judged by as it is if no end of the interval of a difference to \
level 3 is farther out than {FLAT:.0%} of the way that the other makes from level 1 to 5."""


def _table(corner: str, rows: Iterable[tuple[str, list[str]]]) -> str:
    head = [f"| {corner} | " + " | ".join(map(str, LEVELS)) + " |", "|---|" + "---|" * len(LEVELS)]
    return "\n".join([*head, *(f"| {name} | " + " | ".join(values) + " |" for name, values in rows)])
