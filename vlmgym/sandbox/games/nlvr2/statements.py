"""Statements about two scenes, constructed so that the text alone does not reveal the truth.

A statement is generated first, a fair coin then decides whether it is true, and finally two matching scenes are
generated. Hence a statement is true with probability 0.5, whatever its wording. Where possible, a single scene also
reveals little about the truth; see `PATTERNS`. Do not change the wording: it is part of the states, which seed the
image noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.games.scenes.placement import SceneConfig
from vlmgym.sandbox.games.scenes.scene import (
    DIRECTIONS,
    NUMBERS,
    Scene,
    SceneObject,
    Selector,
    is_in_direction,
    pick,
    random_disjoint_pair,
    random_distractors,
)

MAX_COUNT = 6
"""Maximum number of matching objects that a statement attributes to one image."""

Pattern = tuple[bool, bool]
PATTERNS: dict[str, tuple[Sequence[Pattern], Sequence[Pattern]]] = {
    "left": (((True, True), (True, False)), ((False, True), (False, False))),
    "right": (((True, True), (False, True)), ((True, False), (False, False))),
    "both": (((True, True),), ((True, False), (False, True))),
    "one": (((True, False), (False, True)), ((True, True), (False, False))),
    "neither": (((False, False),), ((True, False), (False, True))),
}
"""Images (left, right) that the clause may hold for, by quantifier: for true statements, then for false ones.

With `one`, a single image reveals nothing. With `both` and `neither`, a single image proves a quarter of the
statements false, so a guess from a single image is correct 75% of the time; this is unavoidable.
"""


class Statement(NamedTuple):
    """A statement, its truth, and the left and right scenes."""

    kind: str
    text: str
    truth: bool
    scenes: tuple[Scene, Scene]


class Clause(NamedTuple):
    """A property of a scene, worded for each quantifier, without capitalisation or a full stop.

    `neither` is None if its wording would be clumsy. `make` generates a scene that has the property, or lacks it.
    """

    left: str
    right: str
    both: str
    one: str
    neither: str | None
    make: Callable[[bool], Scene]


def presence(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State that both, exactly one or neither of the images contain an object."""
    return _quantified(rng, "presence", _presence_clause(rng, config), ("both", "one", "neither"))


def count(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State how many objects one image, each image, or both images together contain."""
    if rng.random() < 0.5:
        return _total(rng, config)
    return _quantified(rng, "count", _count_clause(rng, config), ("left", "right", "both", "one"))


def comparison(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State that one image contains more objects than the other, or equally many."""
    selector, most, truth = config.random_selector(rng), _max_count(config), bool(rng.integers(2))
    form = pick(rng, ("more left", "more right", "equal"))
    if form == "equal":
        text = f"There are as many {selector.plural} in the left picture as in the right picture."
        numbers = rng.permutation(most + 1)
        left, right = int(numbers[0]), int(numbers[0] if truth else numbers[1])
    else:
        one, other = ("left", "right") if form == "more left" else ("right", "left")
        text = f"There are more {selector.plural} in the {one} picture than in the {other} picture."
        low = int(rng.integers(most))  # counts differ by one, so one count alone reveals little
        high = low + 1
        left, right = (high, low) if truth == (form == "more left") else (low, high)
    scenes = [_scene_with(rng, config, selector, number) for number in (left, right)]
    return Statement("comparison", text, truth, (scenes[0], scenes[1]))


def spatial(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State that, in one image or both, an object is in a given direction from another."""
    return _quantified(rng, "spatial", _spatial_clause(rng, config), ("left", "right", "both", "one"))


def two_clauses(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """Join a clause about the left image and a clause about the right image with `and` or `or`."""
    makers = (_presence_clause, _count_clause, _spatial_clause)
    first, second = (pick(rng, makers)(rng, config) for _ in range(2))
    truth, joined = bool(rng.integers(2)), pick(rng, ("and", "or"))
    mixed: Sequence[Pattern] = ((True, False), (False, True))
    patterns: Sequence[Pattern] = mixed if truth == (joined == "or") else ((truth, truth),)
    holds = pick(rng, patterns)
    start = "" if joined == "and" else "either "
    text = f"{start}{first.left}, {joined} {second.right}"
    return Statement("two clauses", _sentence(text), truth, (first.make(holds[0]), second.make(holds[1])))


STATEMENTS: tuple[Callable[[np.random.Generator, SceneConfig], Statement], ...] = (
    presence,
    count,
    comparison,
    spatial,
    two_clauses,
)
"""Statement generators, the easiest kind first; one of the first `kinds` is sampled uniformly."""


def _quantified(rng: np.random.Generator, kind: str, clause: Clause, quantifiers: Sequence[str]) -> Statement:
    quantifier, truth = pick(rng, quantifiers), bool(rng.integers(2))
    holds = pick(rng, PATTERNS[quantifier][0 if truth else 1])
    text = getattr(clause, quantifier)
    return Statement(kind, _sentence(text), truth, (clause.make(holds[0]), clause.make(holds[1])))


def _presence_clause(rng: np.random.Generator, config: SceneConfig) -> Clause:
    selector = config.random_selector(rng)

    def make(holds: bool) -> Scene:
        found = int(rng.integers(1, min(2, _max_count(config)) + 1)) if holds else 0
        return _scene_with(rng, config, selector, found)

    return Clause(
        f"the left picture contains {selector.with_article}",
        f"the right picture contains {selector.with_article}",
        f"both pictures contain {selector.with_article}",
        f"exactly one of the pictures contains {selector.with_article}",
        f"neither picture contains {selector.with_article}",
        make,
    )


def _count_clause(rng: np.random.Generator, config: SceneConfig) -> Clause:
    selector, most = config.random_selector(rng), _max_count(config)
    number, at_least = int(rng.integers(1, most + 1)), bool(rng.integers(2))

    def make(holds: bool) -> Scene:
        if at_least:
            near = [number, number + 1] if holds else [number - 1, number - 2]
        else:
            near = [number] if holds else [number - 1, number + 1]
        found = pick(rng, [value for value in near if 0 <= value <= most])
        return _scene_with(rng, config, selector, found)

    what = f"{'at least' if at_least else 'exactly'} {selector.counted(number)}"
    return Clause(
        f"the left picture contains {what}",
        f"the right picture contains {what}",
        f"both pictures contain {what} each",
        f"in one of the pictures, but not in the other, there {'is' if number == 1 else 'are'} {what}",
        None,
        make,
    )


def _spatial_clause(rng: np.random.Generator, config: SceneConfig) -> Clause:
    one, other = random_disjoint_pair(rng, config.vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)

    def make(holds: bool) -> Scene:
        vocabulary = config.vocabulary
        kinds = one.random_kinds(rng, vocabulary, 1) + other.random_kinds(rng, vocabulary, 1)
        kinds += random_distractors(rng, vocabulary, [one, other], config.random_count(rng) - 2)

        def is_placed(objects: Sequence[SceneObject]) -> bool:
            first, second = (objects[0], objects[1]) if holds else (objects[1], objects[0])
            return is_in_direction(first, direction, second)

        return config.place(kinds, rng, is_placed)

    what = f"the {one.singular} is {direction} the {other.singular}"
    return Clause(
        f"in the left picture {what}",
        f"in the right picture {what}",
        f"in both pictures {what}",
        f"in exactly one of the pictures {what}",
        None,
        make,
    )


def _total(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State the total count in both images; the count in one image alone is independent of the truth."""
    selector, most, truth = config.random_selector(rng), _max_count(config), bool(rng.integers(2))
    number = int(rng.integers(1, min(2 * most - 1, len(NUMBERS) - 1) + 1))
    possible = [value for value in range(most + 1) if 0 <= number - value <= most]
    left = pick(rng, possible)
    right = number - left if truth else pick(rng, [value for value in possible if value != number - left])
    verb = "is" if number == 1 else "are"
    text = f"There {verb} exactly {selector.counted(number)} in the two pictures together."
    scenes = [_scene_with(rng, config, selector, found) for found in (left, right)]
    return Statement("count", text, truth, (scenes[0], scenes[1]))


def _scene_with(rng: np.random.Generator, config: SceneConfig, selector: Selector, count: int) -> Scene:
    """Generate a scene with `count` matching objects; the total number of objects is independent of `count`."""
    kinds = selector.random_kinds(rng, config.vocabulary, count)
    kinds += random_distractors(rng, config.vocabulary, [selector], config.random_count(rng) - count)
    return config.place(kinds, rng)


def _max_count(config: SceneConfig) -> int:
    return min(config.min_objects, MAX_COUNT)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
