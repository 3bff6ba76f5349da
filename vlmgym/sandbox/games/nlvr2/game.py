"""NLVR2: two images and a statement that is true or false."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, ParseError, StateError, truncate
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.answer_text import word_answer
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, is_int
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import Task, TaskState, accuracy
from vlmgym.sandbox.core.task_perception import with_task_perception
from vlmgym.sandbox.datasets.rows import Row, text_of, truth_of
from vlmgym.sandbox.games.nlvr2.statements import STATEMENTS
from vlmgym.sandbox.games.scenes.config import SCENE_PERCEPTION, SceneConfig, scene_levels
from vlmgym.sandbox.games.scenes.drawing import paint_scene
from vlmgym.sandbox.games.scenes.scene import Scene
from vlmgym.sandbox.games.scenes.words import (
    FORM,
    NOT_DESCRIBED,
    PLACES,
    compare_scenes,
    describe_scene,
    scene_facts,
    split_sides,
    told,
)

ANSWERS = ("false", "true")
"""Actions in words; action 0 is the first."""
ANSWER_OF_WORD: Mapping[str, int] = {"false": 0, "true": 1, "no": 0, "yes": 1}
"""All answers that are read, in any case, with or without a full stop."""

PROMPT_V1 = """\
You see two images, first the left one, then the right one.{scene} Decide whether this statement about them is true:
{statement}
Actions: true or false (yes and no are read as well). Any other answer counts as neither.
{form}"""

_PERCEPTION_OF_SCENES = f"left: and below it what the left image shows, {FORM} ({PLACES}); then right: likewise"
_PERCEPTION_OF_PHOTOGRAPHS = "what the two images show"


class Nlvr2Config(SceneConfig):
    """Difficulty of the generated questions, and where other ones come from."""

    kinds: int = config_field(
        "reasoning",
        4,
        "Kinds of statements, the first so many of: presence, count, comparison, spatial, two clauses.",
        ge=1,
        le=len(STATEMENTS),
    )

    levels = with_task_perception(
        scene_levels({1: {"kinds": 2}, 2: {"kinds": 3}, 4: {"kinds": 5}, 5: {"kinds": 5}}), SCENE_PERCEPTION
    )


@dataclass(frozen=True, kw_only=True)
class Nlvr2State(TaskState):
    """A statement about two images.

    Attributes:
        kind: Kind of the statement; empty for one out of data.
        statement: The statement.
        truth: Whether it is true.
        scenes: The left and the right scene; empty for images out of data.
    """

    kind: str
    statement: str
    truth: bool
    scenes: tuple[Scene, ...] = ()


class Nlvr2(Task[Nlvr2State, int]):
    """Two images and a statement about them: is it true?

    Action space: `Discrete(2)`: 0 false, 1 true. In words `true` or `false`; `yes` and `no` are read as these, in any
    case. Anything else, also an answer that says both, is unparsable: it is not `false`.
    Observation: the two images, first the left one.
    Reward: 1 if the answer is right; 0 if it is wrong or unparsable.
    Start: without `data`, two generated scenes of coloured shapes and a statement on what is in them (presence), how
    many (count), where there are more (comparison), how they stand to each other (spatial), or two such clauses. Half
    of all statements are true, also of those with the same words. With `data`, a row: columns `left_image`,
    `right_image`, `sentence` and `label`, as the hub's HuggingFaceM4/NLVR2 and the official JSON files have them.
    End: after one turn, whatever was said.
    Info of a step: `correct`, and the `truth` in words.
    Metrics: accuracy, also by kind of statement; an unparsable answer is not correct.

    Version history: v0, first.
    """

    name = "nlvr2"
    version = 0
    Config = Nlvr2Config
    State = Nlvr2State
    prompt_template: ClassVar[str] = PROMPT_V1
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "left": ("left_image", "image_left", "image0", "image_0", "img0"),
        "right": ("right_image", "image_right", "image1", "image_1", "img1"),
        "statement": ("sentence", "statement", "sent", "text", "question"),
        "label": ("label", "answer", "truth"),
    }
    image_fields = ("left", "right")
    action_space = spaces.Discrete(2)

    @cached_property
    def image_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """Two squares."""
        return ((self.config.size, self.config.size, 3),) * 2

    def generate(self, rng: np.random.Generator) -> Nlvr2State:
        """A statement about two generated scenes."""
        made = STATEMENTS[int(rng.integers(self.config.kinds))](rng, self.config)
        return Nlvr2State(kind=made.kind, statement=made.text, truth=made.truth, scenes=made.scenes)

    def from_row(self, fields: Row) -> Nlvr2State:
        """A statement about two images of the user."""
        return Nlvr2State(kind="", statement=text_of(fields, "statement"), truth=truth_of(fields, "label"))

    def legal_actions(self, state: Nlvr2State) -> tuple[int, ...]:
        """False and true, until there was an answer."""
        return () if state.answered else (0, 1)

    def solution(self, state: Nlvr2State) -> int:
        """Whether the statement is true."""
        return int(state.truth)

    def score(self, state: Nlvr2State, action: int) -> tuple[float, Mapping[str, Any]]:
        """1 if the answer is right."""
        if not is_int(action) or action not in (0, 1):
            raise IllegalAction(f"{action!r} is neither 0 (false) nor 1 (true)")
        correct = action == state.truth
        return float(correct), {"correct": correct, "truth": ANSWERS[state.truth]}

    def metrics(self, state: Nlvr2State, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """Whether the answer was right, also by kind of statement."""
        return {**super().metrics(state, infos), **accuracy(state, infos, state.kind)}

    def paint(self, state: Nlvr2State) -> list[ImageArray]:
        """The left and the right scene."""
        c = self.config
        return [paint_scene(scene, c.size, c.similarity, c.theme) for scene in state.scenes]

    def describe(self, state: Nlvr2State) -> str:
        """The objects of both scenes; images out of data are not described."""
        if not state.scenes:
            return NOT_DESCRIBED
        left, right = (describe_scene(scene, self.config.crop) for scene in state.scenes)
        return f"left:\n{left}\nright:\n{right}"

    def perceive(self, state: Nlvr2State, text: str) -> Perception | None:
        """How well a description agrees with the scenes, see `scenes.words.compare_scenes`; None for other images."""
        if not state.scenes:
            return None
        truths = [told(scene, self.config.crop) for scene in state.scenes]
        return compare_scenes([*truths, ()], split_sides(text))

    def prompt(self, state: Nlvr2State) -> str:
        """The statement, the answers, and the response form."""
        scene = f" {scene_facts(self.config.vocabulary)}" if state.scenes else ""
        seen = _PERCEPTION_OF_SCENES if state.scenes else _PERCEPTION_OF_PHOTOGRAPHS
        form = response_format.INSTRUCTIONS_V1.format(perception=seen, answer="true or false")
        return self.prompt_template.format(scene=scene, statement=state.statement, form=form)

    def parse_answer(self, text: str) -> int:
        """`true`, `false`, `yes` or `no`, in any case, with or without a full stop.

        Raises:
            ParseError: The text is anything else, also one that says both: an ambiguous answer is not `false`.
        """
        answer = ANSWER_OF_WORD.get(text.strip().casefold().removesuffix("."))
        if answer is None:
            raise ParseError(f"the answer {truncate(text, 40)!r} is not one of true, false, yes, no")
        return answer

    def normalise_answer(self, text: str) -> str:
        """One word without markup."""
        return word_answer(text)

    def format(self, action: int) -> str:
        """`true` or `false`."""
        return ANSWERS[action]

    def explain(self, state: Nlvr2State, action: int) -> str:
        """Which answer is given."""
        return f"The statement is {self.format(action)}."

    def key_action(self, state: Nlvr2State, key: str) -> int | None:
        """`t` and `y` say true, `f` and `n` say false."""
        return {"t": 1, "y": 1, "f": 0, "n": 0}.get(key)

    def check_state(self, state: Nlvr2State) -> None:
        """Refuse scenes that this configuration cannot have made."""
        super().check_state(state)
        if len(state.scenes) != (2 if state.row is None else 0):
            raise StateError(f"a position of nlvr2 has two scenes or a row of data, not {len(state.scenes)} scenes")
        for scene in state.scenes:
            self.config.check_scene(scene)
