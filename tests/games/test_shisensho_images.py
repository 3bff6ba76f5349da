"""Shisen-Sho with images: tiles match by class although images differ, and user data are not trusted."""

from __future__ import annotations

import hashlib
import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vlmgym.errors import StateError, UsageError
from vlmgym.sandbox.games.shisensho.game import ShisenSho, ShisenShoState
from vlmgym.sandbox.games.shisensho.images import open_digits, tile_images
from vlmgym.sandbox.registry import make_game


def game_of(perception: int = 3, reasoning: int = 3, **overrides: Any) -> ShisenSho:
    made = make_game("shisensho", perception, reasoning, **{"tiles": "digits", "size": 320, **overrides})
    assert isinstance(made, ShisenSho)
    return made


def start(game: ShisenSho, seed: int = 0) -> ShisenShoState:
    return game.start(np.random.default_rng(seed))


def rows_by_class(state: ShisenShoState) -> dict[str, list[int]]:
    """Map each class to the data rows that its tiles show."""
    assert state.images is not None
    by_class: dict[str, list[int]] = {}
    for label, row in zip(chain(*state.board), chain(*state.images.rows)):
        by_class.setdefault(label, []).append(row)
    return by_class


def test_equal_tiles_show_different_images() -> None:
    game = game_of()
    table = open_digits()
    labels = np.array([table[row]["label"] for row in range(len(table))])
    for seed in range(5):
        state = start(game, seed)
        for label, rows in rows_by_class(state).items():
            assert len(rows) == 4
            assert len(set(rows)) == 4
            assert set(labels[rows]) == {label}
    assert rows_by_class(start(game, 0)) != rows_by_class(start(game, 1))


# Images -------------------------------------------------------------------------------------------------------------


GOLDEN = {
    1: "a5780763a11202f807cc78c251f4be6dad7ff3db34b8f2ac1e4138a503f2f4a9",
    3: "6e439c8f4007ff2e62f096d240f363f0c310a064054b6e46e190db883b9930ad",
    5: "87de2d24e5f30eb4b2c5bbb18e1a931e09c48353569797237f980166c6a53725",
}
"""SHA-256 of the first image of seed 0, by perception level."""


@pytest.mark.parametrize("level", sorted(GOLDEN))
def test_golden_images(level: int) -> None:
    state = start(game_of(level))
    assert hashlib.sha256(game_of(level).draw(state).tobytes()).hexdigest() == GOLDEN[level]
    assert {len(set(rows)) for rows in rows_by_class(state).values()} == {min(level, 4) if level == 1 else 4}


# Configuration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"tiles": "folder"}, "tiles=folder needs data="),
        ({"data": "somewhere"}, "data applies to .* not to tiles=digits"),
        ({"tiles": "shapes", "split": "test"}, "split applies to .* not to tiles=shapes"),
        ({"tiles": "letters"}, "tiles"),
        ({"variety": 0}, "variety"),
    ],
)
def test_invalid_configuration(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        game_of(**overrides)


# A folder of class folders --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six classes of four plain images each, in different colours."""
    for number, label in enumerate(("cat", "dog", "golden retriever", "owl", "ant", "yak")):
        (tmp_path / label).mkdir()
        for copy in range(4):
            Image.new("RGB", (30, 20), (40 * number, 60 * copy, 0)).save(tmp_path / label / f"{copy}.png")
    return tmp_path


def in_folder(folder: Path, **overrides: Any) -> ShisenSho:
    tile_images.cache_clear()  # tile images are cached, but tests change the files
    return game_of(tiles="folder", data=str(folder), reasoning=2, **overrides)


def test_tiles_of_a_folder(folder: Path) -> None:
    game = in_folder(folder)
    state = start(game)
    assert set(rows_by_class(state)) == {"cat", "dog", "golden retriever", "owl", "ant", "yak"}
    assert {len(set(rows)) for rows in rows_by_class(state).values()} == {4}
    assert game.perceive(state, game.describe(state)) == (1.0, 1.0)
    assert "(ant, cat, dog, golden retriever, owl, yak)" in game.prompt(state)
    x, y, side, _ = game.painter.geometry.cell_box(2, 3)
    _, _, blue = game.draw(state)[y + side // 2, x + side // 2]
    assert blue == 0


def test_cifar10_is_read_from_a_split_of_a_local_copy(folder: Path) -> None:
    game = game_of(tiles="cifar10", data=str(folder.parent), split=folder.name, reasoning=2)
    assert len(rows_by_class(start(game))["golden retriever"]) == 4
    assert "a photograph (ant, cat, dog" in game.prompt(start(game))


def test_bad_images_are_skipped_and_listed_or_an_error(folder: Path) -> None:
    (folder / "cat" / "1.png").write_bytes(b"no image")
    states = [start(in_folder(folder), seed) for seed in range(4)]
    skipped = {row.index: row.reason for state in states if state.images for row in state.images.skipped}
    assert list(skipped) == [5]  # rows are sorted by class and name; four ants come first
    assert skipped[5]
    assert all(5 not in rows for state in states for rows in rows_by_class(state).values())
    with pytest.raises(UsageError, match=r"row 5 of .*, of class cat, is bad"):
        [start(in_folder(folder, bad_rows="fail"), seed) for seed in range(4)]


def test_changed_images_are_detected(folder: Path) -> None:
    text = in_folder(folder).to_json(start(in_folder(folder)))
    Image.new("RGB", (30, 20), (0, 0, 200)).save(folder / "owl" / "2.png")
    with pytest.raises(StateError, match="have changed"):
        in_folder(folder).from_json(text)
    (folder / "owl" / "2.png").write_bytes(b"no image")
    with pytest.raises(StateError, match="is no longer valid"):
        in_folder(folder).from_json(text)


@pytest.mark.parametrize(("label", "reason"), [("a,b", "cannot appear in a list"), ("CAT", "differ only in case")])
def test_ambiguous_class_names_are_rejected(folder: Path, label: str, reason: str) -> None:
    (folder / "owl").rename(folder / label)
    with pytest.raises(UsageError, match=reason):
        start(in_folder(folder))


def test_rows_without_a_label_are_listed(folder: Path) -> None:
    labels = ["cat", "", "dog", None, "cat", "dog"]
    rows = [{"picture": f"cat/{i % 4}.png", "label": label} for i, label in enumerate(labels)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    state = start(in_folder(folder / "rows.jsonl"))
    assert state.images is not None
    (skipped,) = state.images.skipped
    assert (skipped.index, skipped.reason) == (1, "its label is empty, as in 1 other rows")
    with pytest.raises(UsageError, match=r"row 1 of .* label is empty"):
        start(in_folder(folder / "rows.jsonl", bad_rows="fail"))


def test_data_without_labels_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("image,name\na.png,x\n")
    with pytest.raises(UsageError, match="there is no column for label"):
        start(in_folder(tmp_path / "rows.csv"))
