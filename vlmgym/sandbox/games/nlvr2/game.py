"""NLVR2: judge whether a statement about two images is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, ParseError, StateError, truncate
from vlmgym.sandbox.core.answer_text import word_answer
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.game import ImageArray, is_int
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import TaskState, accuracy
from vlmgym.sandbox.data.rows import DataRow, text_of, truth_of
from vlmgym.sandbox.data.tables import Table
from vlmgym.sandbox.games.nlvr2.layout import open_nlvr2
from vlmgym.sandbox.games.nlvr2.statements import STATEMENTS
from vlmgym.sandbox.games.scenes.placement import SceneConfig, paint_scene
from vlmgym.sandbox.games.scenes.scene import (
    LINE_FORMAT,
    NOT_DESCRIBED,
    Scene,
    compare_descriptions,
    describe_scene,
    object_descriptions,
    scene_prompt,
    split_sides,
)

ANSWERS = ("false", "true")
"""Answer for each action."""
ACTIONS: Mapping[str, int] = {"false": 0, "true": 1, "no": 0, "yes": 1}
"""Action for each accepted answer, in lower case."""

PROMPT_V1 = """\
You see two images: the left one, then the right one.{scene} Is this statement about the two images true?
Statement: {statement}
Answer true or false.
{form}"""

_SCENE_PERCEPTION = f"""\
left:
the objects in the left image, {LINE_FORMAT}
right:
the objects in the right image, in the same format"""
_PHOTO_PERCEPTION = "what the two images show"


class Nlvr2Config(SceneConfig):
    """Configuration of nlvr2."""

    kinds: int = config_field(
        "reasoning",
        [2, 3, 4, 5, 5],
        "Number of kinds of statements, in this order: presence, count, comparison, spatial, two clauses.",
        ge=1,
        le=len(STATEMENTS),
    )


@dataclass(frozen=True, kw_only=True)
class Nlvr2State(TaskState):
    """A statement about two images, and the left and right scenes; `kind` and `scenes` are empty for data."""

    kind: str
    statement: str
    truth: bool
    scenes: tuple[Scene, ...] = ()


class Nlvr2(DataTask[Nlvr2State, int]):
    """Judge whether a statement about two images is true.

    Description:
        Without `data`, the images are two generated scenes of coloured shapes. The statement is about the presence of
        objects, their count, a comparison of counts, a spatial relation, or two such clauses. A statement is true with
        probability 0.5, whatever its wording.

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

    Arguments:
        `data`: Your own statements. Columns: `left_image`, `right_image`, `sentence` and `label`, as in the official
        JSON files and in HuggingFaceM4/NLVR2 on the Hub.
    """

    name = "nlvr2"
    skills = ("perception", "spatial")
    title = "NLVR2"
    Config = Nlvr2Config
    State = Nlvr2State
    prompt_template = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "left": ("left_image", "image_left", "image0", "image_0", "img0"),
        "right": ("right_image", "image_right", "image1", "image_1", "img1"),
        "statement": ("sentence", "statement", "sent", "text", "question"),
        "label": ("label", "answer", "truth"),
    }
    image_fields = ("left", "right")
    generated_field = "scenes"
    action_space = spaces.Discrete(2)
    action_names = ANSWERS

    @cached_property
    def image_shapes(self) -> tuple[tuple[int, int, int], ...]:
        return ((self.config.size, self.config.size, 3),) * 2

    def generate(self, rng: np.random.Generator) -> Nlvr2State:
        made = STATEMENTS[int(rng.integers(self.config.kinds))](rng, self.config)
        return Nlvr2State(kind=made.kind, statement=made.text, truth=made.truth, scenes=made.scenes)

    def open_data(self, data: str, split: str | None) -> Table:
        return open_nlvr2(data, split)

    def from_row(self, fields: DataRow) -> Nlvr2State:
        return Nlvr2State(kind="", statement=text_of(fields, "statement"), truth=truth_of(fields, "label"))

    def legal_actions(self, state: Nlvr2State) -> tuple[int, ...]:
        return () if state.answered else (0, 1)

    def solution(self, state: Nlvr2State) -> int:
        return int(state.truth)

    def score(self, state: Nlvr2State, action: int) -> tuple[float, Mapping[str, Any]]:
        if not is_int(action) or action not in (0, 1):
            raise IllegalAction(f"the action must be 0 (false) or 1 (true), got {action!r}")
        correct = action == state.truth
        return float(correct), {"correct": correct, "truth": ANSWERS[state.truth]}

    def metrics(self, state: Nlvr2State, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        return {**super().metrics(state, infos), **accuracy(state, infos, state.kind)}

    def paint(self, state: Nlvr2State) -> list[ImageArray]:
        c = self.config
        return [paint_scene(scene, c.size, c.similarity, c.theme) for scene in state.scenes]

    def caption(self, state: Nlvr2State) -> str:
        return state.statement

    def describe(self, state: Nlvr2State) -> str:
        if not state.scenes:
            return NOT_DESCRIBED
        left, right = (describe_scene(scene, self.config.crop) for scene in state.scenes)
        return f"left:\n{left}\nright:\n{right}"

    @property
    def no_text_observation(self) -> str | None:
        return "images from data are not described" if self.config.data else None

    def perceive(self, state: Nlvr2State, text: str) -> Perception | None:
        """Score a description of the scenes with `compare_descriptions`; None for images from data."""
        if not state.scenes:
            return None
        truths = [object_descriptions(scene, self.config.crop) for scene in state.scenes]
        return compare_descriptions([*truths, ()], split_sides(text))

    def prompt(self, state: Nlvr2State) -> str:
        scene = f" {scene_prompt(self.config.vocabulary)}" if state.scenes else ""
        perception = _SCENE_PERCEPTION if state.scenes else _PHOTO_PERCEPTION
        return self.fill_prompt(perception, "true or false", scene=scene, statement=state.statement)

    def parse_answer(self, text: str) -> int:
        """Parse `true`, `false`, `yes` or `no`, ignoring case and a full stop."""
        answer = ACTIONS.get(text.strip().lower().removesuffix("."))
        if answer is None:
            raise ParseError(f"the answer must be true or false, got {truncate(text, 40)!r}")
        return answer

    def normalise_answer(self, text: str) -> str:
        return word_answer(text)

    def explain(self, state: Nlvr2State, action: int) -> str:
        return f"The statement is {self.format(action)}."

    def key_action(self, state: Nlvr2State, key: str) -> int | None:
        return {"t": 1, "y": 1, "f": 0, "n": 0}.get(key)

    def check_state(self, state: Nlvr2State) -> None:
        super().check_state(state)
        if len(state.scenes) not in (0, 2):
            raise StateError(f"must have two scenes or a data row, got {len(state.scenes)}")
        for scene in state.scenes:
            self.config.check_scene(scene)
