"""Questions about a scene, with answers that cannot be guessed from the question.

First a question is generated, then its answer is sampled uniformly from all possible answers, then a scene is generated
that makes this answer correct. Hence all answers to the same question are equally likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.games.scenes.placement import SceneConfig
from vlmgym.sandbox.games.scenes.scene import (
    ATTRIBUTES,
    DIRECTIONS,
    SUPERLATIVES,
    Scene,
    SceneObject,
    Selector,
    is_in_direction,
    is_unambiguous,
    offset,
    pick,
    random_disjoint_pair,
    random_distractors,
)

MAX_COUNT = 8
"""Largest answer to a counting question."""


class Question(NamedTuple):
    """A question, its type, its only answer, and the scene."""

    type: str
    text: str
    answer: str
    scene: Scene


def counting(rng: np.random.Generator, config: SceneConfig, relations: bool) -> Question:
    """Ask for the number of objects with given attributes, or in a direction from an object."""
    if relations and rng.random() < 0.5:
        return _counting_in_direction(rng, config)
    vocabulary, total = config.vocabulary, config.random_count(rng)
    selector = config.random_selector(rng)
    answer = int(rng.integers(min(config.min_objects, MAX_COUNT) + 1))
    kinds = selector.random_kinds(rng, vocabulary, answer)
    kinds += random_distractors(rng, vocabulary, [selector], total - answer)
    return Question("counting", f"How many {selector.plural} are there?", str(answer), config.place(kinds, rng))


def _counting_in_direction(rng: np.random.Generator, config: SceneConfig) -> Question:
    vocabulary, total = config.vocabulary, config.random_count(rng)
    landmark, direction = config.random_selector(rng), pick(rng, DIRECTIONS)
    answer = int(rng.integers(min(config.min_objects - 1, MAX_COUNT) + 1))
    kinds = landmark.random_kinds(rng, vocabulary, 1)
    kinds += random_distractors(rng, vocabulary, [landmark], total - 1)

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        mark, *others = objects
        clear = all(is_unambiguous(other, direction, mark) for other in others)
        return clear and sum(is_in_direction(other, direction, mark) for other in others) == answer

    text = f"How many objects are {direction} the {landmark.singular}?"
    return Question("counting", text, str(answer), config.place(kinds, rng, is_placed))


def attribute(rng: np.random.Generator, config: SceneConfig, relations: bool) -> Question:
    """Ask for an attribute of an object identified by other attributes and possibly its position."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    asked = pick(rng, ATTRIBUTES)
    others = [name for name in ATTRIBUTES if name != asked]
    most = min(config.attributes, len(others))
    selector = Selector.random(rng, vocabulary, int(rng.integers(1, most + 1)), others)
    answer = pick(rng, vocabulary.values(asked))
    if not (relations and rng.random() < 0.5):
        target = selector.random_kinds(rng, vocabulary, 1)[0].replace(**{asked: answer})
        kinds = [target, *random_distractors(rng, vocabulary, [selector], total - 1)]
        return Question("attribute", f"What {asked} is the {selector.singular}?", answer, config.place(kinds, rng))
    superlative = pick(rng, list(SUPERLATIVES))
    direction = SUPERLATIVES[superlative]
    rivals = int(rng.integers(1, min(3, total - 1) + 1))
    kinds = selector.random_kinds(rng, vocabulary, 1 + rivals)
    kinds += random_distractors(rng, vocabulary, [selector], total - 1 - rivals)
    kinds[0] = kinds[0].replace(**{asked: answer})
    if all(getattr(kind, asked) == answer for kind in kinds[1 : 1 + rivals]):
        different = [value for value in vocabulary.values(asked) if value != answer]
        kinds[1] = kinds[1].replace(**{asked: pick(rng, different)})

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        return all(is_in_direction(objects[0], direction, rival) for rival in objects[1 : 1 + rivals])

    text = f"What {asked} is the {superlative} {selector.singular}?"
    return Question("attribute", text, answer, config.place(kinds, rng, is_placed))


def existence(rng: np.random.Generator, config: SceneConfig, relations: bool) -> Question:
    """Ask whether an object with given attributes exists, anywhere or in a direction from another object."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    answer = bool(rng.integers(2))
    if not (relations and rng.random() < 0.5):
        selector = config.random_selector(rng)
        found = int(answer)
        kinds = selector.random_kinds(rng, vocabulary, found)
        kinds += random_distractors(rng, vocabulary, [selector], total - found)
        return Question("existence", f"Is there {selector.with_article}?", _yes_or_no(answer), config.place(kinds, rng))
    selector, landmark = random_disjoint_pair(rng, vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)
    found = int(rng.integers(1, min(2, total - 1) + 1))
    kinds = landmark.random_kinds(rng, vocabulary, 1) + selector.random_kinds(rng, vocabulary, found)
    kinds += random_distractors(rng, vocabulary, [selector, landmark], total - len(kinds))

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        mark, candidates = objects[0], objects[1 : 1 + found]
        clear = all(is_unambiguous(one, direction, mark) for one in candidates)
        return clear and any(offset(one, direction, mark) > 0 for one in candidates) == answer

    text = f"Is there {selector.with_article} {direction} the {landmark.singular}?"
    return Question("existence", text, _yes_or_no(answer), config.place(kinds, rng, is_placed))


QUESTIONS: dict[str, Callable[[np.random.Generator, SceneConfig, bool], Question]] = {
    "counting": counting,
    "attribute": attribute,
    "existence": existence,
}
"""Question generators by type; the type is sampled uniformly."""


def _yes_or_no(answer: bool) -> str:
    return "yes" if answer else "no"
