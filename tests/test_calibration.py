"""Calibration on small samples, its intervals, and the committed pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.calibration.measure import Samples
from benchmarks.calibration.page import config_field_table, method, readers
from benchmarks.calibration.specs import spec_of
from vlmgym.sandbox.core.config import DIFFICULTIES

PAGES = Path(__file__).parents[1] / "docs" / "difficulty"
MEASURED = sorted(page.stem for page in PAGES.glob("*.md"))
"""Specs with a committed page in docs/difficulty."""


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
