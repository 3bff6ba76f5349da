"""Scenes: objects are visible, descriptions match images, and descriptions earn partial credit."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.drawing.canvas import COLOURS
from vlmgym.sandbox.drawing.degrade import crop_margin
from vlmgym.sandbox.drawing.shapes import COLOUR_NAMES, SHAPE_NAMES
from vlmgym.sandbox.games.scenes.scene import (
    SIZES,
    Kind,
    Scene,
    SceneConfig,
    SceneObject,
    compare_descriptions,
    describe_scene,
    draw_objects,
    max_objects,
    measure_visibility,
    object_descriptions,
)

kinds = st.builds(Kind, st.sampled_from(SIZES), st.sampled_from(COLOUR_NAMES), st.sampled_from(SHAPE_NAMES))
seeds = st.integers(0, 2**32)


# Placement and drawing ------------------------------------------------------------------------------------------------


def pieces(scene: Scene, crop: float, size: int = 320) -> list[list[int]]:
    """Return the sizes in pixels of the visible pieces of each object, ignoring those thinner than 3 pixels."""
    left = slice(crop_margin(size, crop), size - crop_margin(size, crop))
    found = []
    for number in range(len(scene)):
        shown = [replace(item, colour="red" if i == number else "blue") for i, item in enumerate(scene)]
        red = np.abs(draw_objects(tuple(shown), size)[left, left].astype(int) - COLOURS["red"]).max(axis=2) < 60
        labels, _ = ndimage.label(red, np.ones((3, 3)))
        thick = set(labels[ndimage.binary_erosion(red, np.ones((3, 3), bool))].tolist())
        found.append([count for label, count in enumerate(np.bincount(labels.ravel()).tolist()) if label in thick])
    return found


@given(st.lists(kinds, max_size=10), st.sampled_from([0.5, 0.7, 0.9]), st.sampled_from([0.0, 0.06, 0.3]), seeds)
@settings(max_examples=15)
def test_every_object_is_visible_enough_and_in_one_piece(
    chosen: list[Kind], visible: float, crop: float, seed: int
) -> None:
    config = SceneConfig(visible=visible, crop=crop, rotation=30, objects=3)
    scene = config.place(chosen, np.random.default_rng(seed))
    assert sorted(item.kind for item in scene) == sorted(chosen)
    assert all(seen.share >= visible and seen.connected for seen in measure_visibility(scene, crop))
    assert all(abs(item.angle) <= 30 for item in scene)
    for one, other in combinations(scene, 2):
        assert (one.x, one.y) != (other.x, other.y)
    assert all(len(each) == 1 for each in pieces(scene, crop))  # independent of measure_visibility


def test_objects_in_two_pieces_or_joined_by_a_neck_are_not_connected() -> None:
    long = SceneObject("large", "red", "diamond", 500, 500)
    assert next(measure_visibility((long,))).connected
    for x, connected in ((500, False), (529, False), (540, True), (620, True)):  # at 529, a narrow neck is left
        seen, _ = measure_visibility((long, SceneObject("small", "blue", "square", x, 500)))
        assert seen.connected == connected, x
    moon = SceneObject("large", "red", "moon", 200, 500)
    assert not next(measure_visibility((moon,), crop=0.4)).connected  # only the tips of the moon are left
    assert next(measure_visibility((moon,), crop=0.24)).connected


def test_more_objects_than_fit_are_rejected() -> None:
    rejected: list[dict[str, Any]] = [{"visible": 1.0}, {"crop": 0.4, "visible": 0.9}]
    for overrides in rejected:
        with pytest.raises(UsageError, match=r"objects must be at most \d+ .* got 16"):
            make_game("scenes-questions", objects=16, **overrides)
        most = max_objects(overrides["visible"], overrides.get("crop", 0.0))
        make_game("scenes-questions", objects=most, **overrides).start(np.random.default_rng(0))
    for perception, reasoning in product(range(1, 6), repeat=2):
        make_game("scenes-statements", perception, reasoning)


@pytest.mark.parametrize("seed", range(2))
def test_visible_shares_match_the_image(seed: int) -> None:
    # The eight objects have different colours: count the pixels of each in an image of another size.
    rng = np.random.default_rng(seed)
    chosen = [Kind("large", colour, shape) for colour, shape in zip(COLOUR_NAMES, SHAPE_NAMES)]
    scene = SceneConfig(visible=0.5, crop=0.0, rotation=30).place(chosen, rng)
    image = draw_objects(scene, 600).astype(int)
    for item, seen_share in zip(scene, (seen.share for seen in measure_visibility(scene))):
        alone = draw_objects((item,), 600).astype(int)
        seen, area = ((np.abs(p - COLOURS[item.colour]).max(axis=2) < 2).sum() for p in (image, alone))
        assert seen / area == pytest.approx(seen_share, abs=0.03)  # at low resolution, rims are slightly wider


# Descriptions ---------------------------------------------------------------------------------------------------------

SCENE = (
    SceneObject("large", "red", "circle", 420, 310),
    SceneObject("small", "blue", "star", 100, 900),
    SceneObject("small", "blue", "star", 700, 100),
)
TEXT = "small blue star at (10, 90)\nlarge red circle at (42, 31)\nsmall blue star at (70, 10)"


def compare(text: str, scene: Scene = SCENE) -> tuple[float, float]:
    return compare_descriptions([object_descriptions(scene)], [text])


def test_coordinates_refer_to_the_cropped_image() -> None:
    assert describe_scene((SceneObject("large", "red", "circle", 100, 500),), crop=0.2) == "large red circle at (0, 50)"
    assert (
        describe_scene((SceneObject("large", "red", "circle", 900, 300),), crop=0.2) == "large red circle at (100, 25)"
    )


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("", 0.0),
        ("nothing to see", 0.0),
        ("large red circle at (42, 31)", 1 / 3),
        (TEXT + "\nsmall blue star at (71, 11)", 3 / 4),  # an extra object lowers the score
        (TEXT + "\nI am not sure", 3 / 4),
        ("\n".join([TEXT] * 2), 1 / 2),
        (TEXT.replace("red", "green"), (3 - 1 / 3) / 3),
        (TEXT.replace("large red circle", "small green cross"), 2 / 3),
        (TEXT.replace("(42, 31)", "(53, 31)"), 2 / 3),  # too far away
        ("small blue star at (10, 90)\n" * 3, 1 / 3),  # repeated lines earn credit only once
    ],
)
def test_partial_credit(text: str, partial: float) -> None:
    got, exact = compare(text)
    assert got == pytest.approx(partial)
    assert exact == 0.0


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("- large red circle at 42,31.", True),
        ("* Large  Red circle at ( 42%, 31% );", True),
        ("large red circle at (50, 40)", True),
        ("red circle at (42, 31)", False),
        ("large red circle", False),
        ("large red circle at (0.4, 0.3)", False),
        ("large red circle (1, 2)", False),
    ],
)
def test_forms_of_a_line(line: str, accepted: bool) -> None:
    assert compare(line, SCENE[:1]) == (float(accepted), float(accepted))
