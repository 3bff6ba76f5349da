"""A real headless Chromium for tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from tests.needed import lacking

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",  # as root, Chromium does not start otherwise
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium. Without one, tests are skipped, or fail where CI=true promises one.

    Close it before the module's tests end: while it is open, the thread has a running event loop.
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
    """A page, and everything that it must not do."""

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

    def check(self) -> None:
        """Nothing was complained of, and nothing was asked from elsewhere than the disk."""
        assert self.troubles == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []
