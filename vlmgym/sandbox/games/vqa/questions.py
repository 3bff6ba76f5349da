"""Questions about a scene, with answers that nobody can guess from the question.

The question is chosen first, then its answer, each of the possible ones as likely, and then a scene in which it
is right. So for each text of a question all its answers are as likely, whatever the other config fields are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vlmgym.sandbox.games.scenes.config import SceneConfig
from vlmgym.sandbox.games.scenes.placing import Things
from vlmgym.sandbox.games.scenes.relations import DIRECTIONS, SUPERLATIVES, is_clear, is_clearly, lead
from vlmgym.sandbox.games.scenes.scene import ATTRIBUTES, Scene, pick
from vlmgym.sandbox.games.scenes.selector import Selector, exclusive_pair, misses

MOST_COUNTED = 8
"""No question asks to count more."""


class Question(NamedTuple):
    """A question, its type, its only answer, and the scene it is about."""

    type: str
    text: str
    answer: str
    scene: Scene


def counting(rng: np.random.Generator, config: SceneConfig, relations: bool) -> Question:
    """How many objects look like this, or are on a side of an object."""
    if relations and rng.random() < 0.5:
        return _counting_beside(rng, config)
    vocabulary, total = config.vocabulary, config.random_count(rng)
    meant = _selector(rng, config)
    answer = int(rng.integers(min(config.fewest, MOST_COUNTED) + 1))
    kinds = meant.kinds(rng, vocabulary, answer) + misses(rng, vocabulary, [meant], total - answer)
    return Question("counting", f"How many {meant.many} are there?", str(answer), config.place(kinds, rng))


def _counting_beside(rng: np.random.Generator, config: SceneConfig) -> Question:
    vocabulary, total = config.vocabulary, config.random_count(rng)
    landmark, direction = _selector(rng, config), pick(rng, DIRECTIONS)
    answer = int(rng.integers(min(config.fewest - 1, MOST_COUNTED) + 1))
    kinds = landmark.kinds(rng, vocabulary, 1) + misses(rng, vocabulary, [landmark], total - 1)

    def fits(things: Things) -> bool:
        mark, *others = things
        clear = all(is_clear(other, direction, mark) for other in others)
        return clear and sum(is_clearly(other, direction, mark) for other in others) == answer

    text = f"How many objects are {direction} the {landmark.one}?"
    return Question("counting", text, str(answer), config.place(kinds, rng, fits))


def attribute(rng: np.random.Generator, config: SceneConfig, relations: bool) -> Question:
    """Which colour, shape or size an object has that is named by how it looks else, or by where it is."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    asked = pick(rng, ATTRIBUTES)
    others = [name for name in ATTRIBUTES if name != asked]
    named = min(config.attributes, len(others))
    meant = Selector.random(rng, vocabulary, int(rng.integers(1, named + 1)), others)
    answer = pick(rng, vocabulary.values(asked))
    if not (relations and rng.random() < 0.5):
        target = meant.kinds(rng, vocabulary, 1)[0].but(**{asked: answer})
        kinds = [target, *misses(rng, vocabulary, [meant], total - 1)]
        return Question("attribute", f"What {asked} is the {meant.one}?", answer, config.place(kinds, rng))
    superlative = pick(rng, list(SUPERLATIVES))
    direction = SUPERLATIVES[superlative]
    rivals = int(rng.integers(1, min(3, total - 1) + 1))
    kinds = meant.kinds(rng, vocabulary, 1 + rivals) + misses(rng, vocabulary, [meant], total - 1 - rivals)
    kinds[0] = kinds[0].but(**{asked: answer})
    if all(getattr(kind, asked) == answer for kind in kinds[1 : 1 + rivals]):
        different = [value for value in vocabulary.values(asked) if value != answer]
        kinds[1] = kinds[1].but(**{asked: pick(rng, different)})

    def fits(things: Things) -> bool:
        return all(is_clearly(things[0], direction, rival) for rival in things[1 : 1 + rivals])

    text = f"What {asked} is the {superlative} {meant.one}?"
    return Question("attribute", text, answer, config.place(kinds, rng, fits))


def existence(rng: np.random.Generator, config: SceneConfig, relations: bool) -> Question:
    """Whether there is an object that looks like this, or one on a side of an object."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    answer = bool(rng.integers(2))
    if not (relations and rng.random() < 0.5):
        meant = _selector(rng, config)
        found = int(answer)
        kinds = meant.kinds(rng, vocabulary, found) + misses(rng, vocabulary, [meant], total - found)
        return Question("existence", f"Is there {meant.a_one}?", _yes_or_no(answer), config.place(kinds, rng))
    meant, landmark = exclusive_pair(rng, vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)
    found = int(rng.integers(1, min(2, total - 1) + 1))
    kinds = landmark.kinds(rng, vocabulary, 1) + meant.kinds(rng, vocabulary, found)
    kinds += misses(rng, vocabulary, [meant, landmark], total - len(kinds))

    def fits(things: Things) -> bool:
        mark, ones = things[0], things[1 : 1 + found]
        clear = all(is_clear(one, direction, mark) for one in ones)
        return clear and any(lead(one, direction, mark) > 0 for one in ones) == answer

    text = f"Is there {meant.a_one} {direction} the {landmark.one}?"
    return Question("existence", text, _yes_or_no(answer), config.place(kinds, rng, fits))


QUESTIONS: dict[str, Callable[[np.random.Generator, SceneConfig, bool], Question]] = {
    "counting": counting,
    "attribute": attribute,
    "existence": existence,
}
"""By type, which is chosen first, each as likely."""


def _selector(rng: np.random.Generator, config: SceneConfig) -> Selector:
    return Selector.random(rng, config.vocabulary, int(rng.integers(1, config.attributes + 1)))


def _yes_or_no(answer: bool) -> str:
    return "yes" if answer else "no"
