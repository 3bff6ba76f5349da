"""Visual question answering: an image and a question with a short answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vlmgym.errors import StateError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import config_field, setting
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.line_task import LineTask
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import TaskState, accuracy
from vlmgym.sandbox.core.task_perception import with_task_perception
from vlmgym.sandbox.datasets.rows import BadRow, Row, is_empty, text_of
from vlmgym.sandbox.games.scenes.config import SCENE_PERCEPTION, SceneConfig, scene_levels
from vlmgym.sandbox.games.scenes.drawing import paint_scene
from vlmgym.sandbox.games.scenes.scene import SIZES, Scene, pick
from vlmgym.sandbox.games.scenes.words import (
    FORM,
    NOT_DESCRIBED,
    PLACES,
    compare_scenes,
    describe_scene,
    scene_facts,
    told,
)
from vlmgym.sandbox.games.vqa.answers import agreement
from vlmgym.sandbox.games.vqa.questions import MOST_COUNTED, QUESTIONS

PROMPT_V1 = """\
Answer the question about the image.{scene}
Question: {question}
Actions: the answer alone, on one line: {answers}
{form}"""

_ANSWERS_OF_SCENES = "a number, yes or no, or one of the words above."
_ANSWERS_OF_PHOTOGRAPHS = "a word, a number or a few words. Case, articles and punctuation do not count."
_PERCEPTION_OF_SCENES = f"what the image shows, {FORM} ({PLACES})"
_PERCEPTION_OF_PHOTOGRAPHS = "what the image shows"


class VqaConfig(SceneConfig):
    """Difficulty of the generated questions, and where other ones come from."""

    relations: bool = config_field("reasoning", True, "Half of the questions are on where objects are to each other.")
    agreement: int = setting(
        1, "How many of a row's accepted answers must be equal to an answer for the full reward; VQA takes 3.", ge=1
    )

    levels = with_task_perception(scene_levels({1: {"relations": False}, 2: {"relations": False}}), SCENE_PERCEPTION)


@dataclass(frozen=True, kw_only=True)
class VqaState(TaskState):
    """A question about an image.

    Attributes:
        type: Type of the question, by which accuracy is told: counting, attribute, existence, or that of a row.
        question: The question.
        answers: Accepted answers, at least one; in data of several annotators one for each of them.
        scene: The objects of the image; None for an image out of data.
    """

    type: str
    question: str
    answers: tuple[str, ...]
    scene: Scene | None = None


class Vqa(LineTask[VqaState]):
    """An image and a question about it, which a word or a number answers.

    Action space: one line of text, at most 100 characters. An answer is right if it is equal to an accepted one after
    both were normalised (`rules.answers.normalise`): case, articles, markup, final punctuation and the spelling of
    numbers do not count. A sample is yes, no, a number, a size, a colour or a shape of those that a scene may have.
    Observation: the image.
    Reward: 1 if the answer is right; 0 if it is wrong or unparsable. With `agreement=n` and a row with several
    answers, the share of n of them that are equal to it, at most 1 (n = 3 is the usual one of VQA).
    Start: without `data`, a generated scene of overlapping coloured shapes and a question of three types: counting,
    attribute, existence. Among questions with the same words all answers are as likely. With `data`, a row: columns
    `image`, `question`, `answers` or `answer` (one, or a list), and if there is one, `question_type`.
    End: after one turn, whatever was said.
    Info of a step: `correct`, and the `answers`.
    Metrics: accuracy (mean reward), also by type; an unparsable answer is not correct.

    Version history: v0, first.
    """

    name = "vqa"
    version = 0
    Config = VqaConfig
    State = VqaState
    longest_answer = 100
    prompt_template: ClassVar[str] = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_path", "file_name"),
        "question": ("question", "query", "text"),
        "answer": ("answers", "answer", "multiple_choice_answer", "label"),
        "type": ("question_type", "type", "answer_type", "category"),
    }
    optional_fields = frozenset({"type"})
    image_fields = ("image",)

    def guesses(self) -> tuple[tuple[str, ...], int]:
        """Every answer that a question about a scene can have; of data it is not known what answers they have."""
        numbers = map(str, range(min(self.config.fewest, MOST_COUNTED) + 1))
        return ("yes", "no", *numbers, *SIZES, *self.config.vocabulary.colours, *self.config.vocabulary.shapes), 1

    def generate(self, rng: np.random.Generator) -> VqaState:
        """A question about a generated scene."""
        made = QUESTIONS[pick(rng, tuple(QUESTIONS))](rng, self.config, self.config.relations)
        return VqaState(type=made.type, question=made.text, answers=(made.answer,), scene=made.scene)

    def from_row(self, fields: Row) -> VqaState:
        """A question about an image of the user."""
        given = fields["answer"]
        items = list(given) if isinstance(given, list | tuple) else [given]
        values = [item.get("answer") if isinstance(item, Mapping) else item for item in items]
        answers = tuple(text_of({"answer": value}, "answer") for value in values)
        if not answers:
            raise BadRow("answer is an empty list")
        kind = "" if is_empty(fields.get("type")) else text_of(fields, "type")
        return VqaState(type=kind, question=text_of(fields, "question"), answers=answers)

    def solution(self, state: VqaState) -> str:
        """The accepted answer that most others are equal to."""
        return max(state.answers, key=lambda answer: agreement(answer, state.answers))

    def score(self, state: VqaState, action: str) -> tuple[float, Mapping[str, Any]]:
        """1 if the answer is accepted, or its share of the agreement asked for."""
        self.check_line(action)
        needed = min(self.config.agreement, len(state.answers))
        reward = min(1.0, agreement(action, state.answers) / needed)
        return reward, {"correct": reward, "answers": list(state.answers)}

    def metrics(self, state: VqaState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """The reward, also by type of question."""
        return {**super().metrics(state, infos), **accuracy(state, infos, state.type)}

    def paint(self, state: VqaState) -> list[ImageArray]:
        """The scene."""
        c = self.config
        return [paint_scene(state.scene or (), c.size, c.similarity, c.theme)]

    def describe(self, state: VqaState) -> str:
        """The objects of the scene; an image out of data is not described."""
        return NOT_DESCRIBED if state.scene is None else describe_scene(state.scene, self.config.crop)

    def perceive(self, state: VqaState, text: str) -> Perception | None:
        """How well a description agrees with the scene, see `scenes.words.compare_scenes`; None for other images."""
        return None if state.scene is None else compare_scenes([told(state.scene, self.config.crop)], [text])

    def prompt(self, state: VqaState) -> str:
        """The question, what answers look like, and the response form."""
        if state.scene is None:
            scene, answers, seen = "", _ANSWERS_OF_PHOTOGRAPHS, _PERCEPTION_OF_PHOTOGRAPHS
        else:
            scene = f" {scene_facts(self.config.vocabulary)}"
            answers, seen = _ANSWERS_OF_SCENES, _PERCEPTION_OF_SCENES
        form = response_format.INSTRUCTIONS_V1.format(perception=seen, answer="your answer")
        return self.prompt_template.format(scene=scene, question=state.question, answers=answers, form=form)

    def explain(self, state: VqaState, action: str) -> str:
        """Which answer is given."""
        return f"The answer to the question is {action}."

    def check_state(self, state: VqaState) -> None:
        """Refuse a scene that this configuration cannot have made."""
        super().check_state(state)
        if (state.scene is None) != (state.row is not None):
            raise StateError("a position of vqa has either a scene or a row of data")
        if not state.answers:
            raise StateError("a position of vqa has at least one answer")
        if state.scene is not None:
            self.config.check_scene(state.scene)
