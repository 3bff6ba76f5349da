"""Base class of questions about generated scenes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import Task, TaskStateT
from vlmgym.sandbox.games.scenes.placement import paint_scene
from vlmgym.sandbox.games.scenes.scene import (
    Scene,
    compare_descriptions,
    describe_scene,
    object_descriptions,
    scene_prompt,
    split_sides,
)


class SceneTask(Task[TaskStateT, ActionT]):
    """A question about one generated scene, or about two, left and right."""

    @abstractmethod
    def scenes(self, state: TaskStateT) -> Sequence[Scene]:
        """Scenes of the images, in order."""

    def paint(self, state: TaskStateT) -> list[ImageArray]:
        c = self.config
        return [paint_scene(scene, c.size, c.similarity, c.theme) for scene in self.scenes(state)]

    def describe(self, state: TaskStateT) -> str:
        texts = [describe_scene(scene, self.config.crop) for scene in self.scenes(state)]
        return texts[0] if len(texts) == 1 else "left:\n{}\nright:\n{}".format(*texts)

    def perceive(self, state: TaskStateT, text: str) -> Perception:
        """Score a description of the scenes with `compare_descriptions`."""
        truths = [object_descriptions(scene, self.config.crop) for scene in self.scenes(state)]
        if len(truths) == 1:
            return compare_descriptions(truths, [text])
        return compare_descriptions([*truths, ()], split_sides(text))

    def scene_rules(self) -> str:
        """Part of the prompt that explains scenes, after a space."""
        return f" {scene_prompt(self.config.vocabulary)}"
