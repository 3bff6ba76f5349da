"""What tests need and a machine may lack."""

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skip the test, or fail it where CI=true promises that everything is there."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
