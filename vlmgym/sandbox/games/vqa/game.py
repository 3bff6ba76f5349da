"""Visual question answering: answer a short question about an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vlmgym.errors import StateError
from vlmgym.sandbox.core.config import config_field, setting
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import LineTask, TaskState, accuracy
from vlmgym.sandbox.data.rows import DataRow, is_empty, text_of, texts_of
from vlmgym.sandbox.games.scenes.placement import SceneConfig, paint_scene
from vlmgym.sandbox.games.scenes.scene import (
    LINE_FORMAT,
    NOT_DESCRIBED,
    SIZES,
    Scene,
    compare_descriptions,
    describe_scene,
    object_descriptions,
    pick,
    scene_prompt,
)
from vlmgym.sandbox.games.vqa.answers import agreement
from vlmgym.sandbox.games.vqa.questions import MAX_COUNT, QUESTIONS

PROMPT_V1 = """\
Answer the question about the image.{scene}
Question: {question}
Answer with {answers}.
{form}"""

_SCENE_ANSWERS = "a number, yes, no, or one of the words above"
_PHOTO_ANSWERS = "a word, a number or a short phrase on one line"
_SCENE_PERCEPTION = "the objects in the image, " + LINE_FORMAT
_PHOTO_PERCEPTION = "what the image shows"


class VqaConfig(SceneConfig):
    """Configuration of vqa."""

    relations: bool = config_field(
        "reasoning", [False, False, True, True, True], "Ask half of the questions about spatial relations."
    )
    agreement: int = setting(
        1, "Number of a row's accepted answers that must match for the full reward; 3 in the VQA benchmark.", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class VqaState(TaskState):
    """A question about an image."""

    type: str
    """Question type, for metrics: counting, attribute or existence, or as in the data row; may be empty."""
    question: str
    answers: tuple[str, ...]
    """Accepted answers, at least one; for data with several annotators, one per annotator."""
    scene: Scene | None = None
    """Objects in the image; None for images from data."""


class Vqa(LineTask[VqaState], DataTask[VqaState, str]):
    """Answer a question about an image with a word or a number.

    Description:
        Without `data`, the image is a generated scene of overlapping coloured shapes, and the question asks for a
        count, for an attribute or for the existence of an object. All answers to the same question are equally likely.

    Observation:
        One RGB image.

    Action:
        One line of text, at most 100 characters. Random actions are `yes`, `no`, a number, a size, a colour or a shape.
        Answers are compared after normalisation (`vqa.answers.normalise`): case, articles, markup, final punctuation
        and the spelling of numbers are ignored.

    Reward:
        1 if the answer equals an accepted answer; 0 otherwise and for an unparsable answer. With `agreement=n`, the
        reward is the number of equal accepted answers divided by n, at most 1; if a question has fewer than n
        accepted answers, their number replaces n.

    Episode end:
        After one turn. `info` has `correct` (the reward) and the accepted `answers`. Metrics: `accuracy` (mean
        reward), also for each type of question.

    Arguments:
        `data`: Your own questions. Columns: `image`, `question`, `answer` or `answers` (one or a list) and optionally
        `question_type`.
    """

    name = "vqa"
    skills = ("arithmetic", "perception")
    title = "VQA"
    Config = VqaConfig
    State = VqaState
    max_answer_length = 100
    prompt_template = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "img", "image_url", "image_path", "file_name"),
        "question": ("question", "query", "text"),
        "answer": ("answers", "answer", "multiple_choice_answer", "label"),
        "type": ("question_type", "type", "answer_type", "category"),
    }
    optional_fields = frozenset({"type"})
    image_fields = ("image",)
    generated_field = "scene"

    def guesses(self) -> tuple[tuple[str, ...], int]:
        """All possible answers to generated questions, each one word."""
        numbers = map(str, range(min(self.config.min_objects, MAX_COUNT) + 1))
        return ("yes", "no", *numbers, *SIZES, *self.config.vocabulary.colours, *self.config.vocabulary.shapes), 1

    def generate(self, rng: np.random.Generator) -> VqaState:
        made = QUESTIONS[pick(rng, tuple(QUESTIONS))](rng, self.config, self.config.relations)
        return VqaState(type=made.type, question=made.text, answers=(made.answer,), scene=made.scene)

    def from_row(self, fields: DataRow) -> VqaState:
        items = fields["answer"] if isinstance(fields["answer"], list | tuple) else [fields["answer"]]
        answers = texts_of(
            [item.get("answer", item) if isinstance(item, Mapping) else item for item in items], "answer"
        )
        kind = "" if is_empty(fields.get("type")) else text_of(fields, "type")
        return VqaState(type=kind, question=text_of(fields, "question"), answers=answers)

    def solution(self, state: VqaState) -> str:
        """The most frequent accepted answer among those that can be given."""
        return max(state.answers, key=lambda answer: (answer in self.action_space, agreement(answer, state.answers)))

    def full_score(self, state: VqaState) -> float:
        """1, or less if fewer than `agreement` annotators agree, as in the VQA benchmark."""
        return max(self._reward(state, answer) for answer in state.answers)

    def _reward(self, state: VqaState, answer: str) -> float:
        needed: int = min(self.config.agreement, len(state.answers))
        return min(1.0, agreement(answer, state.answers) / needed)

    def score(self, state: VqaState, action: str) -> tuple[float, Mapping[str, Any]]:
        self.check_line(action)
        reward = self._reward(state, action)
        return reward, {"correct": reward, "answers": list(state.answers)}

    def metrics(self, state: VqaState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        return {**super().metrics(state, infos), **accuracy(state, infos, state.type)}

    def paint(self, state: VqaState) -> list[ImageArray]:
        c = self.config
        return [paint_scene(state.scene or (), c.size, c.similarity, c.theme)]

    def caption(self, state: VqaState) -> str:
        return state.question

    def describe(self, state: VqaState) -> str:
        return NOT_DESCRIBED if state.scene is None else describe_scene(state.scene, self.config.crop)

    @property
    def no_text_observation(self) -> str | None:
        return "images from data are not described" if self.config.data else None

    def perceive(self, state: VqaState, text: str) -> Perception | None:
        """Score a description of the scene with `compare_descriptions`; None for images from data."""
        if state.scene is None:
            return None
        return compare_descriptions([object_descriptions(state.scene, self.config.crop)], [text])

    def prompt(self, state: VqaState) -> str:
        scene, answers, perception = "", _PHOTO_ANSWERS, _PHOTO_PERCEPTION
        if state.scene is not None:
            scene = f" {scene_prompt(self.config.vocabulary)}"
            answers, perception = _SCENE_ANSWERS, _SCENE_PERCEPTION
        return self.fill_prompt(perception, "your answer", scene=scene, question=state.question, answers=answers)

    def explain(self, state: VqaState, action: str) -> str:
        return f"The answer to the question is {action}."

    def check_state(self, state: VqaState) -> None:
        super().check_state(state)
        if not state.answers:
            raise StateError("must have at least one answer")
        if state.scene is not None:
            self.config.check_scene(state.scene)
