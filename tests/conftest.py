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

from tests import serving
from vlmgym.sandbox import registry

settings.register_profile("vlmgym", deadline=None)
settings.load_profile("vlmgym")


LONGEST = ("vllm", "test_easyr1", "test_local_training", "test_ray")
"""Groups of tests that take minutes; they begin first, so that no process waits for them at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist keep the order of groups, which it would sort by how many tests they have."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n 2 --dist loadgroup`, the tests of a file run in one process, those that ask vLLM in one, too."""
    groups: dict[pytest.Item, str] = {}
    for item in items:
        asks = {"vllm_server", "tiny_checkpoint"}.intersection(getattr(item, "fixturenames", ()))
        groups[item] = "vllm" if asks else item.path.stem
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: LONGEST.index(groups[item]) if groups[item] in LONGEST else len(LONGEST))


@pytest.fixture
def lamps(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The user's game of the documentation, which is known only during the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    yield importlib.import_module("lamps")
    del sys.modules["lamps"], registry._registered["lamps-v0"], gymnasium.registry["vlmgym/lamps-v0"]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of data for one test alone."""
    monkeypatch.setenv("VLMGYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny, randomly initialised Qwen3-VL."""
    out = tmp_path_factory.mktemp("checkpoint") / "tiny"
    serving.run_python("-m", "training.tiny_vlm", "qwen3_vl", str(out), "--no-tied")
    return out


@pytest.fixture(scope="session")
def vllm_server(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    """A real vLLM server, one for all tests of a run; it serves the tiny checkpoint."""
    with serving.serve(tiny_checkpoint, tmp_path_factory.mktemp("vllm")) as server:
        yield server
