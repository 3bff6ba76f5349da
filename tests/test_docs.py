"""The site builds without warnings, such as those of broken links, has every public name, and fits a narrow screen."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vlmgym
from tests.browser import Watched, chromium
from vlmgym import curriculum, evaluation, policies, testing

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {"__version__", "ImageArray", "UsageError", "VlmgymError"}
"""Names that are documented in another module, or have no page."""
NARROW = 400
"""Width of a phone in pixels."""
BUILD = """
import sys
import furo
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.cmd.build import main
StandaloneHTMLBuilder.search = False
furo._compute_navigation_tree = lambda context: ""
sys.exit(main(sys.argv[1:]))
"""
"""Program that builds the site without the search index and menu, which would take half of the time."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", BUILD, "-W", "--keep-going", "-q", "-d", str(folder / "cache")]
    command += ["-D", "extensions=myst_parser,sphinx.ext.autodoc,sphinx.ext.napoleon"]  # no pages of source code
    done = subprocess.run([*command, "docs", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def narrow() -> Iterator[Watched]:
    with chromium() as browser:
        yield Watched(browser.new_page(viewport={"width": NARROW, "height": 800}))


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = set(re.findall(r'id="(vlmgym\.[\w.]+)"', (site / "reference.html").read_text()))
    for package in (vlmgym, curriculum, evaluation, policies, testing):
        names = set(package.__all__) - ELSEWHERE
        assert {f"{package.__name__}.{name}" for name in names} <= ids


def test_pages_fit_a_narrow_screen(site: Path, narrow: Watched) -> None:
    for name in ("index", "reference", "evaluating", "suites", "protocols", "record", "peers", "integrations/trl"):
        page = narrow.visit(site / f"{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, name
    narrow.check()
