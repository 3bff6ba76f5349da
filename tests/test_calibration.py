"""Calibration on small samples, its intervals, and the committed pages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from benchmarks.calibration.__main__ import CalibrateConfig, calibrate_games
from benchmarks.calibration.checks import checks
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
