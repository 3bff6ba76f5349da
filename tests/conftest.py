"""What several test files share.

Hypothesis runs without deadlines: how long an example takes says more of the machine than of the code.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gymnasium
import pytest
from hypothesis import settings

from vlmgym.sandbox import registry

settings.register_profile("vlmgym", deadline=None)
settings.load_profile("vlmgym")


@pytest.fixture
def lamps(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The user's game of the documentation, which is known only during the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    yield importlib.import_module("lamps")
    del sys.modules["lamps"], registry._registered["lamps-v0"], gymnasium.registry["vlmgym/lamps-v0"]
