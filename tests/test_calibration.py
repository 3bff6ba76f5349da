"""Calibration on small samples, its intervals, and the committed pages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from benchmarks.calibration.__main__ import CalibrateConfig, calibrate_games
from benchmarks.calibration.checks import checks
from benchmarks.calibration.estimate import Estimate, falls, steps
from benchmarks.calibration.measure import Samples
from benchmarks.calibration.page import config_field_table, method, readers
from benchmarks.calibration.spec import Spec
from benchmarks.calibration.specs import spec_of
from vlmgym.sandbox.core.config import DIFFICULTIES

PAGES = Path(__file__).parents[1] / "docs" / "difficulty"
MEASURED = sorted(page.stem for page in PAGES.glob("*.md"))
"""Specs with a committed page in docs/difficulty."""


def small(name: str, turns: int) -> Spec:
    """Return a spec with small images and short episodes."""
    spec = spec_of(name)
    return replace(spec, overrides={**spec.overrides, "size": 160}, turns=dict.fromkeys(spec.turns, turns))


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


@pytest.mark.parametrize(("hardest", "expected"), [(0.3, True), (0.45, False)])
def test_levels_fall_only_if_every_decrease_is_clear(hardest: float, expected: bool) -> None:
    levels = {level: Estimate(mean, mean - 0.05, mean + 0.05, 100) for level, mean in enumerate((0.9, 0.5, hardest))}
    assert falls(steps(levels)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2048", "geospot"])
def test_calibrating_a_game(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.calibration.__main__.spec_of", lambda name: small(name, 10))
    monkeypatch.setattr("benchmarks.calibration.task_specs.TRAINING_QUESTIONS", 20)
    config = CalibrateConfig(game=(name,), episodes=5, images=8, output_dir=tmp_path)
    (found,) = calibrate_games(config, Console(quiet=True))
    page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert f"python -m benchmarks.calibration {name} --episodes 5 --images 8" in page
    assert f"({name}.png)" in page
    with Image.open(tmp_path / f"{name}.png") as plots:
        assert plots.width == 1000
    assert len(checks(found)) == 5
    for check in checks(found):
        assert check.claim in page
    assert "nan" not in page


@pytest.mark.parametrize("name", MEASURED)
def test_committed_page_is_current_and_all_its_claims_hold(name: str) -> None:
    spec, page = spec_of(name), (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for difficulty in DIFFICULTIES:
        assert config_field_table(spec, difficulty) in page, f"python -m benchmarks.calibration {name}"
    assert page.count("| yes |") == 5
    assert "**no**" not in page
    command = re.search(
        rf"^    python -m benchmarks.calibration {name} --episodes (\d+) --images (\d+)$", page, re.MULTILINE
    )
    assert command is not None
    deviation = re.search(r"haze\s+of\s+([\d.]+)\s+times", page)
    haze = float(deviation[1]) if deviation else 0.0
    assert spec.reading.haze in (haze, None)
    for words in (
        spec.notes,
        spec.criterion.why,
        readers(spec, haze),
        method(spec, Samples(*map(int, command.groups()))),
    ):
        assert " ".join(words.split()) in " ".join(page.split()), f"python -m benchmarks.calibration {name}"
