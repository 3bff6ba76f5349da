"""Skins: the same episodes as if their images were made of wood, on paper, sketched, or on a screen."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import vlmgym
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.sandbox.drawing.skins import SkinName, apply_skin

SKINS: tuple[SkinName, ...] = get_args(SkinName)
PIXELS = {
    "flat": "bd90f8e0dc41",
    "wood": "1bbe40d9a1ce",
    "paper": "08535a62d0b3",
    "sketch": "c169b3422923",
    "screen": "20d60294c299",
}
"""Start of the hash of a small image in each skin; the same on every processor."""


def picture() -> Any:
    """Draw a colour gradient with a dark rectangle."""
    rows, columns = np.mgrid[:96, :120]
    image = np.stack([rows * 2, columns * 2, (rows + columns) % 256], -1).astype(np.uint8)
    image[30:60, 40:80] = (20, 30, 60)
    return image


@pytest.mark.parametrize("skin", SKINS)
def test_pixels_of_a_skin(skin: SkinName) -> None:
    image = picture()
    shown = apply_skin(image, skin, 5)
    np.testing.assert_array_equal(image, picture())
    assert sha256(shown.tobytes()).hexdigest()[:12] == PIXELS[skin]
    assert np.array_equal(shown, apply_skin(image, skin, 6)) == (skin != "screen")


@pytest.mark.parametrize("game", ["2048", "sudoku", "charts", "wordsearch"])
def test_episodes_only_differ_in_their_images(game: str) -> None:
    plain, *others = (vlmgym.Episode(game, 3, size=160, skin=skin) for skin in SKINS)
    for other in others:
        assert other.prompt == plain.prompt
        assert [image.shape for image in other.images] == [image.shape for image in plain.images]
        difference = np.abs(other.images[0].astype(int) - plain.images[0]).mean()
        assert 2 < difference < 70


def brightness(images_batch: Any, prompt_batch: Any) -> list[str]:
    """Say how bright the image is."""
    return [f"<think>{np.mean(images[-1]):.3f}</think><answer>up</answer>" for images in images_batch]


POLICY = f"{__file__}:brightness"


def test_all_skins_are_runs_with_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "skins"
    options = ["--policy", POLICY, "--skins", "--episodes", "2", "--max-turns", "3", "--size", "96"]
    main(["eval", "2048", *options, "--workers", "0", "--videos", "0", "--no-report", "--output-dir", str(folder)])
    printed = capsys.readouterr().out
    runs = {skin: open_run(folder / skin) for skin in SKINS}
    assert all(f"| {skin} |" in printed for skin in SKINS)
    assert {skin: run.config.prompts.skin for skin, run in runs.items()} == {skin: skin for skin in SKINS}
    seen = [[turn.response for episode in run.read() for turn in episode.turns] for run in runs.values()]
    assert len({*map(tuple, seen)}) == len(SKINS)
