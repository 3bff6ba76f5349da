"""Scene statements: judge whether a statement about two generated scenes is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import pick
from vlmgym.sandbox.games.nlvr2 import StatementState, StatementTask
from vlmgym.sandbox.games.scenes.scene import (
    DIRECTIONS,
    LINE_FORMAT,
    NUMBERS,
    Scene,
    SceneConfig,
    SceneObject,
    SceneTask,
    Selector,
    is_in_direction,
    random_disjoint_pair,
    random_distractors,
)

# Statements -----------------------------------------------------------------------------------------------------------
# A statement is generated first, a fair coin then decides whether it is true, and finally two matching scenes are
# generated. Hence a statement is true with probability 0.5, whatever its wording. Where possible, a single scene also
# reveals little about the truth; see `PATTERNS`. Do not change the wording: it is part of the states, which seed the
# image noise.

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


Statement = tuple[str, bool, tuple[Scene, ...]]
"""A statement without capitalisation or a full stop, its truth, and the left and right scenes."""

CONTAINS = {
    "left": "the left picture contains {}",
    "right": "the right picture contains {}",
    "both": "both pictures contain {}",
    "one": "exactly one of the pictures contains {}",
    "neither": "neither picture contains {}",
}
IS_TRUE_IN = {
    "left": "in the left picture {}",
    "right": "in the right picture {}",
    "both": "in both pictures {}",
    "one": "in exactly one of the pictures {}",
}


class Clause(NamedTuple):
    """A property of a scene.

    Attributes:
        wordings: Wordings of a statement about the property, by quantifier.
        what: The property, which the wordings insert.
        make: Generates a scene that has the property, or lacks it.
    """

    wordings: Mapping[str, str]
    what: str
    make: Callable[[bool], Scene]

    def worded(self, quantifier: str) -> str:
        """Return the statement with a quantifier."""
        return self.wordings[quantifier].format(self.what)


def presence(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State that both, exactly one or neither of the images contain an object."""
    return _quantified(rng, _presence_clause(rng, config), ("both", "one", "neither"))


def count(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State how many objects one image, each image, or both images together contain."""
    if rng.random() < 0.5:
        return _total(rng, config)
    return _quantified(rng, _count_clause(rng, config), ("left", "right", "both", "one"))


def comparison(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State that one image contains more objects than the other, or equally many."""
    selector, most, truth = config.random_selector(rng), _max_count(config), bool(rng.integers(2))
    form = pick(rng, ("more left", "more right", "equal"))
    if form == "equal":
        text = f"there are as many {selector.plural} in the left picture as in the right picture"
        numbers = rng.permutation(most + 1)
        left, right = int(numbers[0]), int(numbers[0] if truth else numbers[1])
    else:
        fuller, emptier = ("left", "right") if form == "more left" else ("right", "left")
        text = f"there are more {selector.plural} in the {fuller} picture than in the {emptier} picture"
        low = int(rng.integers(most))  # counts differ by one, so one count alone reveals little
        high = low + 1
        left, right = (high, low) if truth == (form == "more left") else (low, high)
    return text, truth, tuple(_scene_with(rng, config, selector, number) for number in (left, right))


def spatial(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State that, in one image or both, an object is in a given direction from another."""
    return _quantified(rng, _spatial_clause(rng, config), ("left", "right", "both", "one"))


def two_clauses(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """Join a clause about the left image and a clause about the right image with `and` or `or`."""
    makers = (_presence_clause, _count_clause, _spatial_clause)
    first, second = (pick(rng, makers)(rng, config) for _ in range(2))
    truth, joined = bool(rng.integers(2)), pick(rng, ("and", "or"))
    mixed: Sequence[Pattern] = ((True, False), (False, True))
    patterns: Sequence[Pattern] = mixed if truth == (joined == "or") else ((truth, truth),)
    holds = pick(rng, patterns)
    start = "" if joined == "and" else "either "
    text = f"{start}{first.worded('left')}, {joined} {second.worded('right')}"
    return text, truth, (first.make(holds[0]), second.make(holds[1]))


STATEMENTS: Mapping[str, Callable[[np.random.Generator, SceneConfig], Statement]] = {
    "presence": presence,
    "count": count,
    "comparison": comparison,
    "spatial": spatial,
    "two clauses": two_clauses,
}
"""Statement generators by kind, the easiest first; one of the first `kinds` is sampled uniformly."""


def _quantified(rng: np.random.Generator, clause: Clause, quantifiers: Sequence[str]) -> Statement:
    quantifier, truth = pick(rng, quantifiers), bool(rng.integers(2))
    holds = pick(rng, PATTERNS[quantifier][0 if truth else 1])
    return clause.worded(quantifier), truth, (clause.make(holds[0]), clause.make(holds[1]))


def _presence_clause(rng: np.random.Generator, config: SceneConfig) -> Clause:
    selector = config.random_selector(rng)

    def make(holds: bool) -> Scene:
        number = int(rng.integers(1, min(2, _max_count(config)) + 1)) if holds else 0
        return _scene_with(rng, config, selector, number)

    return Clause(CONTAINS, selector.with_article, make)


def _count_clause(rng: np.random.Generator, config: SceneConfig) -> Clause:
    selector, most = config.random_selector(rng), _max_count(config)
    number, at_least = int(rng.integers(1, most + 1)), bool(rng.integers(2))

    def make(holds: bool) -> Scene:
        if at_least:
            near = [number, number + 1] if holds else [number - 1, number - 2]
        else:
            near = [number] if holds else [number - 1, number + 1]
        matching = pick(rng, [value for value in near if 0 <= value <= most])
        return _scene_with(rng, config, selector, matching)

    both, verb = "both pictures contain {} each", "is" if number == 1 else "are"
    wordings = CONTAINS | {"both": both, "one": f"in one of the pictures, but not in the other, there {verb} {{}}"}
    return Clause(wordings, f"{'at least' if at_least else 'exactly'} {selector.counted(number)}", make)


def _spatial_clause(rng: np.random.Generator, config: SceneConfig) -> Clause:
    subject, landmark = random_disjoint_pair(rng, config.vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)

    def make(holds: bool) -> Scene:
        vocabulary = config.vocabulary
        kinds = subject.random_kinds(rng, vocabulary, 1) + landmark.random_kinds(rng, vocabulary, 1)
        kinds += random_distractors(rng, vocabulary, [subject, landmark], config.random_count(rng) - 2)

        def is_placed(objects: Sequence[SceneObject]) -> bool:
            first, second = (objects[0], objects[1]) if holds else (objects[1], objects[0])
            return is_in_direction(first, direction, second)

        return config.place(kinds, rng, is_placed)

    return Clause(IS_TRUE_IN, f"the {subject.singular} is {direction} the {landmark.singular}", make)


def _total(rng: np.random.Generator, config: SceneConfig) -> Statement:
    """State the total count in both images; the count in one image alone is independent of the truth."""
    selector, most, truth = config.random_selector(rng), _max_count(config), bool(rng.integers(2))
    number = int(rng.integers(1, min(2 * most - 1, len(NUMBERS) - 1) + 1))
    possible = [value for value in range(most + 1) if 0 <= number - value <= most]
    left = pick(rng, possible)
    right = number - left if truth else pick(rng, [value for value in possible if value != number - left])
    verb = "is" if number == 1 else "are"
    text = f"there {verb} exactly {selector.counted(number)} in the two pictures together"
    return text, truth, tuple(_scene_with(rng, config, selector, matching) for matching in (left, right))


def _scene_with(rng: np.random.Generator, config: SceneConfig, selector: Selector, count: int) -> Scene:
    """Generate a scene with `count` matching objects; the total number of objects is independent of `count`."""
    kinds = selector.random_kinds(rng, config.vocabulary, count)
    kinds += random_distractors(rng, config.vocabulary, [selector], config.random_count(rng) - count)
    return config.place(kinds, rng)


def _max_count(config: SceneConfig) -> int:
    return min(config.min_objects, MAX_COUNT)


# The task -------------------------------------------------------------------------------------------------------------

_PERCEPTION = f"""\
left:
the objects in the left image, {LINE_FORMAT}
right:
the objects in the right image, in the same format"""


class SceneStatementsConfig(SceneConfig):
    """Configuration of scenes-statements."""

    kinds: int = config_field(
        "reasoning",
        [2, 3, 4, 5, 5],
        "Number of kinds of statements, in this order: presence, count, comparison, spatial, two clauses.",
        ge=1,
        le=len(STATEMENTS),
    )


@dataclass(frozen=True, kw_only=True)
class SceneStatementsState(StatementState):
    """A statement about two scenes: left, right."""

    scenes: tuple[Scene, ...]


class SceneStatements(StatementTask[SceneStatementsState], SceneTask[SceneStatementsState, int]):
    """Judge whether a statement about two scenes of coloured shapes is true.

    Description:
        The statement is about the presence of objects, their count, a comparison of counts, a spatial relation, or two
        such clauses, in the style of NLVR. It is true with probability 0.5, whatever its wording.

    Observation:
        Two RGB images: left, right.

    Action:
        `Discrete(2)`: 0 is `false`, 1 is `true`. In text, `no` and `yes` are accepted too. Any other answer is
        unparsable.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. `info` has `correct` and the `truth` as a word. Metrics: `accuracy`, also for each kind of
        statement.
    """

    name = "scenes-statements"
    skills = ("perception", "spatial")
    title = "Scene statements"
    Config = SceneStatementsConfig
    State = SceneStatementsState

    def generate(self, rng: np.random.Generator) -> SceneStatementsState:
        kind = pick(rng, [*STATEMENTS][: self.config.kinds])
        text, truth, scenes = STATEMENTS[kind](rng, self.config)
        return SceneStatementsState(kind=kind, statement=f"{text[0].upper()}{text[1:]}.", truth=truth, scenes=scenes)

    def scenes(self, state: SceneStatementsState) -> tuple[Scene, ...]:
        return state.scenes

    def prompt(self, state: SceneStatementsState) -> str:
        return self.fill_prompt(_PERCEPTION, scene=self.scene_rules(), statement=state.statement)
