"""Calibration: intervals, readers, players, and the order of levels on small samples."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from benchmarks.calibration.__main__ import CalibrateConfig, calibrate_games
from benchmarks.calibration.checks import checks
from benchmarks.calibration.crops import SIDE
from benchmarks.calibration.estimate import Estimate, drift, falls, paired_steps, steps
from benchmarks.calibration.formatting import mean
from benchmarks.calibration.image_reader import TESTING, FirstReader, crop_images, read_levels
from benchmarks.calibration.measure import Samples
from benchmarks.calibration.page import config_field_table, method, readers
from benchmarks.calibration.play import play
from benchmarks.calibration.reader import TemplateReader, fitted_accuracy
from benchmarks.calibration.spec import Spec
from benchmarks.calibration.specs import SPECS, spec_of
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES
from vlmgym.sandbox.datasets.extra import library

PAGES = Path(__file__).parents[1] / "docs" / "difficulty"
MEASURED = sorted(page.stem for page in PAGES.glob("*.md"))
"""Specs with a committed page; the page of a game says so if its levels have not been measured yet."""


def small(name: str, turns: int) -> Spec:
    """A spec with small images and short episodes."""
    spec = spec_of(name)
    return replace(spec, overrides={**spec.overrides, "size": 160}, turns=dict.fromkeys(spec.turns, turns))


def test_interval_of_a_difference() -> None:
    first, second = Estimate(0.9, 0.86, 0.93, 100), Estimate(0.5, 0.46, 0.54, 100)
    difference = first.less(second)
    assert difference.mean == pytest.approx(0.4)
    assert difference.low == pytest.approx(0.4 - math.hypot(0.04, 0.04))
    assert difference.high == pytest.approx(0.4 + math.hypot(0.03, 0.04))


@pytest.mark.parametrize("correlation", [0.0, 2.0])
def test_mean_over_kinds_covers_the_truth_for_correlated_images(correlation: float) -> None:
    assert Estimate.evenly([[1.0], [0.0] * 99], [[0], list(range(99))]).mean == pytest.approx(0.5)
    rng, covered = np.random.default_rng(0), 0
    for _ in range(1000):
        images = rng.normal(0, 1, 40) * correlation
        sources = [rng.integers(40, size=count) for count in (40, 160, 100)]
        kinds = [images[source] + rng.normal(4 * kind, 1, len(source)) for kind, source in enumerate(sources)]
        found = Estimate.evenly([kind.tolist() for kind in kinds], [source.tolist() for source in sources])
        covered += found.low < 4 < found.high
    assert 920 < covered < 970, "95% intervals cover the truth 95% of the time"


def test_steps_within_their_interval_do_not_count() -> None:
    levels = {1: Estimate(0.9, 0.88, 0.92, 9), 2: Estimate(0.8, 0.78, 0.82, 9), 3: Estimate(0.79, 0.77, 0.81, 9)}
    assert not falls(steps(levels))
    assert falls(steps({level: levels[level] for level in (1, 2)}))
    assert falls(paired_steps({1: [0.3, 0.5, 0.72], 2: [0.2, 0.41, 0.6]}))


def test_drift_uses_the_farthest_end_of_an_interval() -> None:
    difficulty = {1: Estimate(1.0, 1.0, 1.0, 9), 3: Estimate(0.5, 0.5, 0.5, 9), 5: Estimate(0.0, 0.0, 0.0, 9)}
    elsewhere = {1: Estimate(0.52, 0.49, 0.55, 9), 3: difficulty[3], 5: Estimate(0.48, 0.41, 0.55, 9)}
    assert drift(elsewhere, difficulty) == pytest.approx(0.09)


def test_template_reader_chooses_among_allowed_labels() -> None:
    images = np.eye(3, 12, dtype=np.float32)
    reader = TemplateReader(np.concatenate([images, images]), ["a", "b", "c"] * 2)
    assert reader.read(images) == ["a", "b", "c"]
    assert reader.among({"a", "b"}).read(images)[:2] == ["a", "b"]
    assert reader.among({"b"}).read(images) == ["b"] * 3


def test_fitted_reader_is_tested_on_held_out_images() -> None:
    rng = np.random.default_rng(0)
    noise, words = rng.standard_normal((400, 30)).astype(np.float32), ["a", "b"] * 200
    right, total, exact = fitted_accuracy(np.concatenate([noise, noise]), words * 2)
    assert total == 100, "identical images count once"
    assert 0.3 < right / total < 0.7, "noise cannot be generalised"
    assert not exact
    assert fitted_accuracy(np.eye(2, 12, dtype=np.float32), ["a", "b"]) == (2, 2, True)


def test_play_counts_legal_actions() -> None:
    spec = small("2048", 20)
    measures = play(spec, spec.at(), "random-legal", 3)
    assert measures["turns"] == Estimate(20.0, 20.0, 20.0, 3)
    assert measures["share legal"].mean == pytest.approx(measures["legal actions"].mean / 4)
    assert measures["ended"].mean == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2048", "shisensho_images", "geospot", "vqa", "caption"])
def test_calibrating_a_game(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.calibration.__main__.spec_of", lambda name: small(name, 10))
    monkeypatch.setattr("benchmarks.calibration.task_specs.TRAINING_QUESTIONS", 20)
    images = 16 if name == "vqa" else 8  # its images show few objects
    config = CalibrateConfig(game=(name,), episodes=5, images=images, output_dir=tmp_path)
    (found,) = calibrate_games(config, Console(quiet=True))
    page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert f"python -m benchmarks.calibration {name} --episodes 5 --images {images}" in page
    assert f"({name}.png)" in page
    with Image.open(tmp_path / f"{name}.png") as plots:
        assert plots.width == 1000
    assert len(checks(found)) == 5
    for check in checks(found):
        assert check.claim in page
    assert "nan" not in page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2048", "shisensho", "swap"])
def test_levels_are_in_order(name: str) -> None:
    """Few samples of levels that are far apart; the pages compare all of them."""
    spec = small(name, 300 if name == "2048" else 30)
    reader = FirstReader(spec, 10)
    shown = {level: crop_images(spec, spec.at(perception=level), 20, TESTING) for level in (1, 4, 5)}
    words = {word for crops in shown.values() for _, there in crops for word in there}
    assert falls(paired_steps({level: reader.accuracy(crops, words)[0] for level, crops in shown.items()}))
    chosen = spec.criterion
    games = {level: spec.at(reasoning=level) for level in (2, 3, 4)}
    played = {level: play(spec, game, chosen.player, 12)[chosen.measure] for level, game in games.items()}
    assert falls(steps(played))


@pytest.mark.parametrize("name", MEASURED)
def test_committed_page_has_the_current_levels_and_all_claims_hold(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for difficulty in DIFFICULTIES:
        assert config_field_table(spec_of(name), difficulty) in page, f"python -m benchmarks.calibration {name}"
    assert page.count("| yes |") == 5
    assert "**no**" not in page


@pytest.mark.parametrize("name", MEASURED)
def test_committed_page_describes_the_current_method(name: str) -> None:
    spec, page = spec_of(name), (PAGES / f"{name}.md").read_text(encoding="utf-8")
    command = re.search(
        rf"^    python -m benchmarks.calibration {name} --episodes (\d+) --images (\d+)$", page, re.MULTILINE
    )
    assert command is not None
    deviation = re.search(r"standard\s+deviation\s+of\s+([\d.]+)\s+of\s+full", page)
    haze = float(deviation[1]) if deviation else 0.0
    assert spec.reading.haze in (haze, None)
    for words in (
        spec.notes,
        spec.criterion.why,
        readers(spec, haze),
        method(spec, Samples(*map(int, command.groups()))),
    ):
        assert " ".join(words.split()) in " ".join(page.split()), f"python -m benchmarks.calibration {name}"


def test_every_page_has_a_spec() -> None:
    assert set(SPECS) >= set(MEASURED) >= {"2048", "shisensho", "swap", "geospot", "nlvr2", "vqa", "caption", "maze"}


def test_format_of_intervals() -> None:
    assert mean(Estimate(17.8, 17.66, 17.94, 9)) == "17.8 ± 0.14"
    assert mean(Estimate(0.07, 0.042, 0.114, 9)) == "0.07 (0.042 to 0.11)"
    assert mean(Estimate(1.0, 1.0, 1.0, 9)) == "1"


def test_cells_are_cropped_exactly() -> None:
    spec = spec_of("2048")
    seen, words = spec.reading.crop(spec.at(1), np.random.default_rng(0))
    assert seen.shape == (16, SIDE * SIDE * 3)
    assert 0 <= seen.min() <= seen.max() <= 1
    for word in set(words):
        same = seen[[other == word for other in words]]
        assert np.array_equal(same, np.repeat(same[:1], len(same), axis=0)), "equal tiles look equal at level 1"


def test_marks_lie_where_their_label_says() -> None:
    spec = spec_of("geospot")
    for perception in (1, 3):
        seen, words = spec.reading.crop(spec.at(perception), np.random.default_rng(5))
        red, green, blue = np.moveaxis(seen.reshape(-1, SIDE, SIDE, 3), -1, 0)
        for cyan, word in zip(np.minimum(green, blue) - red, words, strict=True):  # only the mark is cyan
            row, column = (int(3 * place.mean() / SIDE) for place in np.nonzero(cyan > cyan.max() / 2))
            assert word == f"{row}-{column}"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"game": ("chess",)}, "no calibration spec 'chess'"),
        ({"episodes": 2}, "episodes must be an integer of at least 5, got 2"),
        ({"images": 4}, "images must be an integer of at least 5, got 4"),
    ],
)
def test_bad_arguments(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        calibrate_games(CalibrateConfig(**config, output_dir=tmp_path), Console(quiet=True))


def test_too_few_images() -> None:
    with pytest.raises(UsageError, match="5 images are too few"):
        read_levels(small("caption", 1), 5, lambda _: None)


def test_one_thread_per_game_and_a_file_as_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools, threads = library("threadpoolctl", "calibrate", "tasks"), []

    def stop(*_: Any) -> None:
        threads.append({pool["num_threads"] for pool in pools.threadpool_info()})
        if len(threads) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.calibration.__main__.calibrate", stop)
    monkeypatch.setattr("benchmarks.calibration.__main__.write_page", lambda *_: "")
    monkeypatch.setattr("benchmarks.calibration.__main__.draw_plots", lambda *_: b"")
    monkeypatch.setattr("benchmarks.calibration.__main__._summary", lambda *_: "")
    with pools.threadpool_limits(2), pytest.raises(KeyboardInterrupt):
        calibrate_games(CalibrateConfig(game=("2048", "swap"), output_dir=tmp_path), Console(quiet=True))
    assert threads == [{1}, {1}]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        calibrate_games(CalibrateConfig(game=("2048",), output_dir=tmp_path / "file"), Console(quiet=True))
