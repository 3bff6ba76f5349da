"""The documentation site: it builds without warnings, has every public name, and fits a narrow screen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vlmgym
from tests.browser import Watched, chromium

ROOT = Path(__file__).resolve().parents[1]
NARROW = 400
"""Width of a phone in pixels."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(folder / "cache")]
    done = subprocess.run([*command, "docs", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def narrow() -> Iterator[Watched]:
    with chromium() as browser:
        yield Watched(browser.new_page(viewport={"width": NARROW, "height": 800}))


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "reference.html").read_text()
    for name in set(vlmgym.__all__) - {"__version__", "UsageError", "VlmgymError"}:
        assert f'id="vlmgym.{name}"' in text, name


def test_pages_fit_a_narrow_screen(site: Path, narrow: Watched) -> None:
    for name in ("index", "reference", "evaluating", "protocols", "games/swap", "integrations/trl"):
        page = narrow.visit(site / f"{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, name
    narrow.check()
