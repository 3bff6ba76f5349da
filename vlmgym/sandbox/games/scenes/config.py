"""Config fields shared by the games with generated scenes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from pydantic import model_validator

from vlmgym.errors import StateError
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.task import TaskConfig
from vlmgym.sandbox.drawing.palette import ThemeName
from vlmgym.sandbox.games.scenes.placement import max_objects, place_objects
from vlmgym.sandbox.games.scenes.scene import SIZES, Kind, Scene, SceneObject, Selector, Vocabulary
from vlmgym.sandbox.games.tiles import MAX_COLOURS, MAX_SHAPES

SceneConfigT = TypeVar("SceneConfigT", bound="SceneConfig")


class SceneConfig(TaskConfig):
    """Config fields of generated scenes. With `data`, they have no effect."""

    theme: ThemeName = config_field("perception", "light", "Background colour.")
    similarity: float = config_field(
        "perception", [0.0, 0.05, 0.1, 0.3, 0.5], "Similarity of the objects' colours.", ge=0.0, le=0.9
    )
    visible: float = config_field(
        "perception", [0.95, 0.85, 0.7, 0.65, 0.6], "Minimum visible fraction of each object's area.", ge=0.5, le=1.0
    )
    rotation: int = config_field(
        "perception", [0, 10, 20, 25, 30], "Maximum rotation of objects in degrees.", ge=0, le=30
    )
    objects: int = config_field("reasoning", [3, 5, 8, 10, 13], "Maximum number of objects in an image.", ge=3, le=16)
    colours: int = config_field("reasoning", [3, 4, 6, 8, 8], "Number of object colours.", ge=3, le=MAX_COLOURS)
    shapes: int = config_field("reasoning", [3, 4, 6, 8, 8], "Number of object shapes.", ge=3, le=MAX_SHAPES)
    attributes: int = config_field(
        "reasoning", [1, 2, 2, 3, 3], "Maximum number of attributes that describe an object.", ge=1, le=3
    )

    @model_validator(mode="after")
    def _check_room(self: SceneConfigT) -> SceneConfigT:
        """Reject more objects than fit, rather than search for positions in vain."""
        most = max_objects(self.visible, self.crop)
        if self.data is None and self.objects > most:
            raise ValueError(
                f"objects must be at most {most} with visible={self.visible} and crop={self.crop}, got {self.objects}"
            )
        return self

    @property
    def vocabulary(self) -> Vocabulary:
        """The colours and shapes in use."""
        return Vocabulary.of(self.colours, self.shapes)

    @property
    def min_objects(self) -> int:
        """Minimum number of objects in an image."""
        return max(2, self.objects * 2 // 3)

    def random_count(self, rng: np.random.Generator) -> int:
        """Sample the number of objects in an image, independently of the answer."""
        return int(rng.integers(self.min_objects, self.objects + 1))

    def random_selector(self, rng: np.random.Generator) -> Selector:
        """Sample a selector with 1 to `attributes` attributes."""
        return Selector.random(rng, self.vocabulary, int(rng.integers(1, self.attributes + 1)))

    def place(
        self,
        kinds: Sequence[Kind],
        rng: np.random.Generator,
        accept: Callable[[Sequence[SceneObject]], bool] = lambda objects: True,
    ) -> Scene:
        """Place objects according to this configuration; see `place_objects`."""
        return place_objects(kinds, rng, visible=self.visible, crop=self.crop, rotation=self.rotation, accept=accept)

    def check_scene(self, scene: Scene) -> None:
        """Raise `StateError` if a scene has too few or too many objects, or an object with a disallowed attribute."""
        vocabulary = self.vocabulary
        if not 1 <= len(scene) <= self.objects:
            raise StateError(f"a scene must have 1 to {self.objects} objects, got {len(scene)}")
        for item in scene:
            for value, values in (
                (item.size, SIZES),
                (item.colour, vocabulary.colours),
                (item.shape, vocabulary.shapes),
            ):
                if value not in values:
                    raise StateError(f"an object's attribute must be one of {', '.join(values)}, got {value!r}")
