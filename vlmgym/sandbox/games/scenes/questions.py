"""Scene questions: answer a question about a generated scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import pick
from vlmgym.sandbox.games.scenes.scene import (
    ATTRIBUTES,
    DIRECTIONS,
    LINE_FORMAT,
    SIZES,
    SUPERLATIVES,
    Scene,
    SceneConfig,
    SceneObject,
    SceneTask,
    Selector,
    is_in_direction,
    is_unambiguous,
    offset,
    random_disjoint_pair,
    random_distractors,
)
from vlmgym.sandbox.games.vqa import QuestionState, QuestionTask


class SceneQuestionsConfig(SceneConfig):
    """Configuration of scenes-questions."""

    relations: bool = config_field(
        "reasoning", [False, False, True, True, True], "Ask half of the questions about spatial relations."
    )

    @property
    def guesses(self) -> tuple[str, ...]:
        """All possible answers."""
        numbers = map(str, range(min(self.min_objects, MAX_COUNT) + 1))
        return ("yes", "no", *numbers, *SIZES, *self.vocabulary.colours, *self.vocabulary.shapes)


# Questions ------------------------------------------------------------------------------------------------------------
# First a question is generated, then its answer is sampled uniformly from all possible answers, then a scene is made
# in which this answer is correct. Hence the question alone says nothing about its answer.

MAX_COUNT = 8
"""Largest answer to a counting question."""


Question = tuple[str, str, Scene]
"""A question, its only answer, and the scene."""


def counting(rng: np.random.Generator, config: SceneQuestionsConfig) -> Question:
    """Ask for the number of objects with given attributes, or in a direction from an object."""
    if config.relations and rng.random() < 0.5:
        return _counting_in_direction(rng, config)
    vocabulary, total = config.vocabulary, config.random_count(rng)
    selector = config.random_selector(rng)
    answer = int(rng.integers(min(config.min_objects, MAX_COUNT) + 1))
    kinds = selector.random_kinds(rng, vocabulary, answer)
    kinds += random_distractors(rng, vocabulary, [selector], total - answer)
    return f"How many {selector.plural} are there?", str(answer), config.place(kinds, rng)


def _counting_in_direction(rng: np.random.Generator, config: SceneQuestionsConfig) -> Question:
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
    return text, str(answer), config.place(kinds, rng, is_placed)


def attribute(rng: np.random.Generator, config: SceneQuestionsConfig) -> Question:
    """Ask for an attribute of an object identified by other attributes and possibly its position."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    attribute = pick(rng, ATTRIBUTES)
    others = [name for name in ATTRIBUTES if name != attribute]
    most = min(config.attributes, len(others))
    selector = Selector.random(rng, vocabulary, int(rng.integers(1, most + 1)), others)
    answer = pick(rng, vocabulary.values(attribute))
    if not (config.relations and rng.random() < 0.5):
        target = selector.random_kinds(rng, vocabulary, 1)[0].replace(**{attribute: answer})
        kinds = [target, *random_distractors(rng, vocabulary, [selector], total - 1)]
        return f"What {attribute} is the {selector.singular}?", answer, config.place(kinds, rng)
    superlative = pick(rng, list(SUPERLATIVES))
    direction = SUPERLATIVES[superlative]
    rivals = int(rng.integers(1, min(3, total - 1) + 1))
    kinds = selector.random_kinds(rng, vocabulary, 1 + rivals)
    kinds += random_distractors(rng, vocabulary, [selector], total - 1 - rivals)
    kinds[0] = kinds[0].replace(**{attribute: answer})
    if all(getattr(kind, attribute) == answer for kind in kinds[1 : 1 + rivals]):
        different = [value for value in vocabulary.values(attribute) if value != answer]
        kinds[1] = kinds[1].replace(**{attribute: pick(rng, different)})

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        return all(is_in_direction(objects[0], direction, rival) for rival in objects[1 : 1 + rivals])

    text = f"What {attribute} is the {superlative} {selector.singular}?"
    return text, answer, config.place(kinds, rng, is_placed)


def existence(rng: np.random.Generator, config: SceneQuestionsConfig) -> Question:
    """Ask whether an object with given attributes exists, anywhere or in a direction from another object."""
    vocabulary, total = config.vocabulary, config.random_count(rng)
    exists = int(rng.integers(2))
    answer = "yes" if exists else "no"
    if not (config.relations and rng.random() < 0.5):
        selector = config.random_selector(rng)
        kinds = selector.random_kinds(rng, vocabulary, exists)
        kinds += random_distractors(rng, vocabulary, [selector], total - exists)
        return f"Is there {selector.with_article}?", answer, config.place(kinds, rng)
    selector, landmark = random_disjoint_pair(rng, vocabulary, config.attributes)
    direction = pick(rng, DIRECTIONS)
    count = int(rng.integers(1, min(2, total - 1) + 1))
    kinds = landmark.random_kinds(rng, vocabulary, 1) + selector.random_kinds(rng, vocabulary, count)
    kinds += random_distractors(rng, vocabulary, [selector, landmark], total - len(kinds))

    def is_placed(objects: Sequence[SceneObject]) -> bool:
        mark, candidates = objects[0], objects[1 : 1 + count]
        clear = all(is_unambiguous(item, direction, mark) for item in candidates)
        return clear and any(offset(item, direction, mark) > 0 for item in candidates) == exists

    text = f"Is there {selector.with_article} {direction} the {landmark.singular}?"
    return text, answer, config.place(kinds, rng, is_placed)


QUESTIONS: dict[str, Callable[[np.random.Generator, SceneQuestionsConfig], Question]] = {
    "counting": counting,
    "attribute": attribute,
    "existence": existence,
}
"""Question generators by type; the type is sampled uniformly."""


# The task -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SceneQuestionsState(QuestionState):
    """A question about a scene."""

    scene: Scene


class SceneQuestions(QuestionTask[SceneQuestionsState], SceneTask[SceneQuestionsState, str]):
    """Answer a question about a scene of coloured shapes with a word or a number.

    Description:
        Some of the shapes overlap. The question asks for a count, for an attribute or for the existence of an object,
        in the style of CLEVR. All answers to the same question are equally likely.

    Observation:
        One RGB image.

    Action:
        One line of text, at most 100 characters. Random actions are `yes`, `no`, a number, a size, a colour or a shape.
        Answers are compared after normalisation (`vqa.normalise`): case, articles, markup, final punctuation
        and the spelling of numbers are ignored.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. `info` has `correct` (the reward) and the accepted `answers`. Metrics: `accuracy`, also for each
        type of question.
    """

    name = "scenes-questions"
    skills = ("arithmetic", "perception")
    title = "Scene questions"
    Config = SceneQuestionsConfig
    State = SceneQuestionsState

    def generate(self, rng: np.random.Generator) -> SceneQuestionsState:
        kind = pick(rng, tuple(QUESTIONS))
        text, answer, scene = QUESTIONS[kind](rng, self.config)
        return SceneQuestionsState(type=kind, question=text, answers=(answer,), scene=scene)

    def scenes(self, state: SceneQuestionsState) -> tuple[Scene, ...]:
        return (state.scene,)

    def prompt(self, state: SceneQuestionsState) -> str:
        return self.fill_prompt(
            f"the objects in the image, {LINE_FORMAT}",
            scene=self.scene_rules(),
            question=state.question,
            answers="a number, yes, no, or one of the words above",
        )
