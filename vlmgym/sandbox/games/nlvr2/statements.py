"""Statements about two scenes, of which half are true, also among those with the same words.

The statement is chosen first, then by a coin whether it is true, and then two scenes of which it is.
Where a statement can be made such that each scene alone tells nothing, the scenes are chosen so; see `PATTERNS` for
where it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.games.scenes.config import SceneConfig
from vlmgym.sandbox.games.scenes.placing import Things
from vlmgym.sandbox.games.scenes.relations import DIRECTIONS, is_clearly
from vlmgym.sandbox.games.scenes.scene import Scene, pick
from vlmgym.sandbox.games.scenes.selector import NUMBERS, Selector, exclusive_pair, misses

MOST_COUNTED = 6
"""No statement says that one picture has more."""

Pattern = tuple[bool, bool]
PATTERNS: dict[str, tuple[Sequence[Pattern], Sequence[Pattern]]] = {
    "left": (((True, True), (True, False)), ((False, True), (False, False))),
    "right": (((True, True), (False, True)), ((True, False), (False, False))),
    "both": (((True, True),), ((True, False), (False, True))),
    "one": (((True, False), (False, True)), ((True, True), (False, False))),
    "neither": (((False, False),), ((True, False), (False, True))),
}
"""For which pictures something holds where it is said of these pictures, truly and falsely.

Whoever sees one picture of `one` knows nothing. Of `both` and `neither` one picture is enough to know in a quarter of
all cases that it is false, which nothing can mend: it is then right in three of four cases.
"""


class Statement(NamedTuple):
    """A statement, whether it is true, and the left and the right scene."""

    kind: str
    text: str
    truth: bool
    scenes: tuple[Scene, Scene]


class Clause(NamedTuple):
    """Something that holds for a scene or does not.

    Attributes:
        left: Said of the left picture, without a capital and a full stop.
        right: The same of the right picture.
        both: Said of both pictures.
        one: Said of exactly one of them.
        neither: Said of neither; None where that would be clumsy.
        make: A scene for which it holds or does not.
    """

    left: str
    right: str
    both: str
    one: str
    neither: str | None
    make: Callable[[bool], Scene]


def presence(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """Both, one or neither of the pictures contains an object."""
    return _quantified(rng, "presence", _containing(rng, config), ("both", "one", "neither"))


def count(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """A picture, or both together, have so many objects of a look."""
    if rng.random() < 0.5:
        return _total(rng, config)
    return _quantified(rng, "count", _counted(rng, config), ("left", "right", "both", "one"))


def comparison(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """One picture has more objects of a look than the other, or as many."""
    meant, most, truth = _selector(rng, config), _most(config), bool(rng.integers(2))
    form = pick(rng, ("more left", "more right", "equal"))
    if form == "equal":
        text = f"There are as many {meant.many} in the left picture as in the right picture."
        numbers = rng.permutation(most + 1)
        left, right = int(numbers[0]), int(numbers[0] if truth else numbers[1])
    else:
        one, other = ("left", "right") if form == "more left" else ("right", "left")
        text = f"There are more {meant.many} in the {one} picture than in the {other} picture."
        low = int(rng.integers(most))  # numbers differ by one, so that a single one tells little
        high = low + 1
        left, right = (high, low) if truth == (form == "more left") else (low, high)
    scenes = [_scene_with(rng, config, meant, number) for number in (left, right)]
    return Statement("comparison", text, truth, (scenes[0], scenes[1]))


def spatial(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """An object is on a side of another one, in a picture or in both or in one of them."""
    return _quantified(rng, "spatial", _beside(rng, config), ("left", "right", "both", "one"))


def two_clauses(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """One thing of the left picture and, or or, another of the right picture."""
    makers = (_containing, _counted, _beside)
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
"""From the easiest kind to the hardest; one is chosen first, each as likely."""


def _quantified(rng: np.random.Generator, kind: str, clause: Clause, quantifiers: Sequence[str]) -> Statement:
    quantifier, truth = pick(rng, quantifiers), bool(rng.integers(2))
    holds = pick(rng, PATTERNS[quantifier][0 if truth else 1])
    text = getattr(clause, quantifier)
    return Statement(kind, _sentence(text), truth, (clause.make(holds[0]), clause.make(holds[1])))


def _containing(rng: np.random.Generator, config: SceneConfig) -> Clause:
    meant = _selector(rng, config)

    def make(holds: bool) -> Scene:
        found = int(rng.integers(1, min(2, _most(config)) + 1)) if holds else 0
        return _scene_with(rng, config, meant, found)

    return Clause(
        f"the left picture contains {meant.a_one}",
        f"the right picture contains {meant.a_one}",
        f"both pictures contain {meant.a_one}",
        f"exactly one of the pictures contains {meant.a_one}",
        f"neither picture contains {meant.a_one}",
        make,
    )


def _counted(rng: np.random.Generator, config: SceneConfig) -> Clause:
    meant, most = _selector(rng, config), _most(config)
    number, at_least = int(rng.integers(1, most + 1)), bool(rng.integers(2))

    def make(holds: bool) -> Scene:
        if at_least:
            near = [number, number + 1] if holds else [number - 1, number - 2]
        else:
            near = [number] if holds else [number - 1, number + 1]
        found = pick(rng, [value for value in near if 0 <= value <= most])
        return _scene_with(rng, config, meant, found)

    what = f"{'at least' if at_least else 'exactly'} {meant.counted(number)}"
    return Clause(
        f"the left picture contains {what}",
        f"the right picture contains {what}",
        f"both pictures contain {what} each",
        f"in one of the pictures, but not in the other, there {'is' if number == 1 else 'are'} {what}",
        None,
        make,
    )


def _beside(rng: np.random.Generator, config: SceneConfig) -> Clause:
    one, other = exclusive_pair(rng, config.vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)

    def make(holds: bool) -> Scene:
        vocabulary = config.vocabulary
        kinds = one.kinds(rng, vocabulary, 1) + other.kinds(rng, vocabulary, 1)
        kinds += misses(rng, vocabulary, [one, other], config.random_count(rng) - 2)

        def fits(things: Things) -> bool:
            first, second = (things[0], things[1]) if holds else (things[1], things[0])
            return is_clearly(first, direction, second)

        return config.place(kinds, rng, fits)

    what = f"the {one.one} is {direction} the {other.one}"
    return Clause(
        f"in the left picture {what}",
        f"in the right picture {what}",
        f"in both pictures {what}",
        f"in exactly one of the pictures {what}",
        None,
        make,
    )


def _total(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """Both pictures together: each number of one picture is as likely whether the statement is true or not."""
    meant, most, truth = _selector(rng, config), _most(config), bool(rng.integers(2))
    number = int(rng.integers(1, min(2 * most - 1, len(NUMBERS) - 1) + 1))
    possible = [value for value in range(most + 1) if 0 <= number - value <= most]
    left = pick(rng, possible)
    right = number - left if truth else pick(rng, [value for value in possible if value != number - left])
    verb = "is" if number == 1 else "are"
    text = f"There {verb} exactly {meant.counted(number)} in the two pictures together."
    scenes = [_scene_with(rng, config, meant, found) for found in (left, right)]
    return Statement("count", text, truth, (scenes[0], scenes[1]))


def _scene_with(rng: np.random.Generator, config: SceneConfig, meant: Selector, count: int) -> Scene:
    """A scene with so many objects that are meant; how many others there are tells nothing of that."""
    kinds = meant.kinds(rng, config.vocabulary, count)
    kinds += misses(rng, config.vocabulary, [meant], config.random_count(rng) - count)
    return config.place(kinds, rng)


def _most(config: SceneConfig) -> int:
    return min(config.fewest, MOST_COUNTED)


def _selector(rng: np.random.Generator, config: SceneConfig) -> Selector:
    return Selector.random(rng, config.vocabulary, int(rng.integers(1, config.attributes + 1)))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
