"""Skip tests whose requirements a machine lacks."""

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skip the test, or fail it in CI (CI=true), where everything must be available."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
