"""A headless Chromium for tests of pages, and helpers to read reports."""

import base64
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tests.needed import lacking

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",  # Chromium does not start as root without this
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
WAIT = 30_000
"""Time limit for loading a page, in milliseconds."""
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></script><!-- \u2028"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium. Without one, skip the test, or fail it in CI (CI=true).

    Close it before tests that call `asyncio.run`, which fails while Chromium keeps an event loop of the thread running.
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        lacking(f"there is no browser: none of {', '.join(NAMES)} is on the PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page whose errors and requests are recorded."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.troubles: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.troubles.append(message.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", self._dismiss)
        page.on("request", lambda request: self.requests.append(request.url))

    def _dismiss(self, dialog: Dialog) -> None:
        self.troubles.append(dialog.message)
        dialog.dismiss()

    def visit(self, path: Path, address: str = "") -> Page:
        """Open a page from disk; if `address` names an episode, wait until it or a message is shown."""
        self.page.goto("about:blank")
        self.page.goto(path.as_uri() + address)
        if "/" in address:
            self.page.wait_for_selector(".pane .outcome, .message:not(:empty)")
        return self.page

    def check(self) -> None:
        """Check that there were no errors, and no requests except for files on disk and data URLs."""
        assert self.troubles == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


def check_accessible(page, width):
    """Check that a page breaks no rule of axe and fits into a window of this width."""
    violations = page.evaluate("axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)")
    assert [(rule["id"], [node["target"] for node in rule["nodes"]]) for rule in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def shows(page, selector, text):
    """Wait until an element has this text. The page's CSP forbids code from strings, so `wait_for_function` fails."""
    expect(page.locator(selector)).to_have_text(text, use_inner_text=True, timeout=WAIT)


def turn(page):
    return page.inner_text(".position")


def rows(page):
    return page.locator(".row").all_inner_texts()


def choose(page, label, option):
    page.get_by_role("combobox", name=label, exact=True).select_option(option)


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data.partition(",")[2]))).convert("RGB"))


def canvas(page, selector):
    page.wait_for_selector(f"{selector} canvas")
    return pixels(page.eval_on_selector(f"{selector} canvas", "canvas => canvas.toDataURL('image/png')"))
