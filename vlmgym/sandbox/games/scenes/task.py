"""Base class of questions about generated scenes or the user's images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.game import NOT_DESCRIBED, ImageArray
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import TaskStateT
from vlmgym.sandbox.games.scenes.placement import paint_scene
from vlmgym.sandbox.games.scenes.scene import (
    Scene,
    compare_descriptions,
    describe_scene,
    object_descriptions,
    scene_prompt,
    split_sides,
)


class SceneTask(DataTask[TaskStateT, ActionT]):
    """A question about one generated scene, about two, left and right, or about the user's images."""

    @abstractmethod
    def scenes(self, state: TaskStateT) -> Sequence[Scene]:
        """Scenes of the images, in order; none if the images are from data."""

    def paint(self, state: TaskStateT) -> list[ImageArray]:
        c = self.config
        return [paint_scene(scene, c.size, c.similarity, c.theme) for scene in self.scenes(state)]

    def describe(self, state: TaskStateT) -> str:
        texts = [describe_scene(scene, self.config.crop) for scene in self.scenes(state)]
        if len(texts) == 2:
            return "left:\n{}\nright:\n{}".format(*texts)
        return texts[0] if texts else NOT_DESCRIBED

    def perceive(self, state: TaskStateT, text: str) -> Perception | None:
        """Score a description of the scenes with `compare_descriptions`; None for images from data."""
        truths = [object_descriptions(scene, self.config.crop) for scene in self.scenes(state)]
        if len(truths) == 2:
            return compare_descriptions([*truths, ()], split_sides(text))
        return compare_descriptions(truths, [text]) if truths else None

    def scene_rules(self, state: TaskStateT) -> str:
        """Part of the prompt that explains generated scenes, after a space."""
        return f" {scene_prompt(self.config.vocabulary)}" if self.scenes(state) else ""
