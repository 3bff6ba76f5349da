"""What tasks over generated scenes share: config fields, and what the difficulty levels set them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import model_validator

from vlmgym.errors import StateError
from vlmgym.sandbox.core.config import Levels, config_field
from vlmgym.sandbox.core.task import TaskConfig
from vlmgym.sandbox.games.scenes.placing import Things, place, room
from vlmgym.sandbox.games.scenes.scene import SIZES, Kind, Scene, Vocabulary
from vlmgym.sandbox.games.tiles.names import MAX_COLOURS, MAX_SHAPES
from vlmgym.sandbox.rendering.palette import ThemeName

SCENE_PERCEPTION: Levels = {
    1: {"similarity": 0.0, "visible": 0.95, "rotation": 0},
    2: {"similarity": 0.05, "visible": 0.85, "rotation": 10},
    3: {},
    4: {"similarity": 0.3, "visible": 0.65, "rotation": 25},
    5: {"similarity": 0.5, "visible": 0.6, "rotation": 30},
}
"""What the perception dial sets in tasks over scenes, besides what it sets in every task."""


SceneConfigT = TypeVar("SceneConfigT", bound="SceneConfig")


class SceneConfig(TaskConfig):
    """Knobs of the generated scenes; they make no difference to questions about data of the user."""

    theme: ThemeName = config_field("perception", "light", "Colour of the background.")
    similarity: float = config_field("perception", 0.1, "How alike the objects' colours are.", ge=0.0, le=0.9)
    visible: float = config_field("perception", 0.7, "Share of every object that can be seen at least.", ge=0.5, le=1.0)
    rotation: int = config_field("perception", 20, "Objects are turned by up to this many degrees.", ge=0, le=30)
    objects: int = config_field("reasoning", 8, "Objects of an image, at most.", ge=3, le=16)
    colours: int = config_field("reasoning", 6, "Colours of objects.", ge=3, le=MAX_COLOURS)
    shapes: int = config_field("reasoning", 6, "Shapes of objects.", ge=3, le=MAX_SHAPES)
    attributes: int = config_field("reasoning", 2, "Attributes by which an object is named, at most.", ge=1, le=3)

    @model_validator(mode="after")
    def _has_room(self: SceneConfigT) -> SceneConfigT:
        """Refuse more objects than there is room for, which would only be known after a long search."""
        most = room(self.visible, self.crop)
        if self.data is None and self.objects > most:
            raise ValueError(f"with visible={self.visible} and crop={self.crop}, objects is at most {most}")
        return self

    @property
    def vocabulary(self) -> Vocabulary:
        """The colours and shapes there are."""
        return Vocabulary.of(self.colours, self.shapes)

    @property
    def fewest(self) -> int:
        """Objects of an image, at least."""
        return max(2, self.objects * 2 // 3)

    def random_count(self, rng: np.random.Generator) -> int:
        """How many objects an image has, which tells nothing of the answer."""
        return int(rng.integers(self.fewest, self.objects + 1))

    def place(
        self, kinds: Sequence[Kind], rng: np.random.Generator, accept: Callable[[Things], bool] = lambda things: True
    ) -> Scene:
        """See `placing.place`."""
        return place(kinds, rng, visible=self.visible, crop=self.crop, rotation=self.rotation, accept=accept)

    def check_scene(self, scene: Scene) -> None:
        """Refuse a scene that this configuration cannot have made.

        Raises:
            StateError: It has too few or too many objects, or one of another colour, shape, size or place.
        """
        vocabulary = self.vocabulary
        if not 1 <= len(scene) <= self.objects:
            raise StateError(f"a scene has 1 to {self.objects} objects, not {len(scene)}")
        for thing in scene:
            for value, values in (
                (thing.size, SIZES),
                (thing.colour, vocabulary.colours),
                (thing.shape, vocabulary.shapes),
            ):
                if value not in values:
                    raise StateError(f"an object of a scene is {value!r}, which is none of {', '.join(values)}")
            if not (0 <= thing.x <= 1000 and 0 <= thing.y <= 1000 and abs(thing.angle) <= 180):
                raise StateError(f"an object of a scene is at ({thing.x}, {thing.y}), turned by {thing.angle} degrees")


def scene_levels(reasoning: dict[int, dict[str, Any]]) -> Levels:
    """Reasoning levels of a task over scenes: what they all set, and what the task adds."""
    shared: dict[int, dict[str, Any]] = {
        1: {"objects": 3, "colours": 3, "shapes": 3, "attributes": 1},
        2: {"objects": 5, "colours": 4, "shapes": 4},
        3: {},
        4: {"objects": 10, "colours": 8, "shapes": 8, "attributes": 3},
        5: {"objects": 13, "colours": 8, "shapes": 8, "attributes": 3},
    }
    return {level: {**values, **reasoning.get(level, {})} for level, values in shared.items()}
