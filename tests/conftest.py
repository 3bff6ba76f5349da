"""Shared fixtures and hooks. Hypothesis has no deadlines, because they would measure the machine, not the code."""

import importlib
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
from hypothesis import settings

from tests import serving
from tests.commands import Done, in_process
from tests.training import VARIABLES, run_training
from vlmgym import make_vec
from vlmgym.cli.main import main
from vlmgym.sandbox import registry
from vlmgym.sandbox.envs.vector import GameVectorEnv

settings.register_profile("vlmgym", deadline=None, max_examples=25)
settings.load_profile("vlmgym")


LONGEST = (
    *("vllm", "test_easyr1", "test_vllm", "test_ray", "test_packages", "test_openai_failures", "test_vector"),
    *("test_view", "test_conformance", "test_docs", "test_leaderboard", "test_doc_code", "test_scripts"),
)
"""Test groups that take longest. They start first, so that no process is still busy with one at the end."""


NEEDED = {
    "in_training": ("torch", ".venv-train"),
    "ray_cluster": ("ray", ".venv-easyr1"),
    "easyr1_cpu": ("verl", ".venv-easyr1"),
    "easyr1_gpu": ("verl liger_kernel", ".venv-easyr1 with the packages for GPUs:"),
    "test_inspect": ("inspect_ai", ".venv-integrations"),
    "test_verifiers": ("verifiers", ".venv-verifiers"),
    "test_openenv": ("openenv", ".venv-integrations"),
    "test_skyrl": ("skyrl_gym", ".venv-integrations"),
    "test_vagen": ("vagen", "PYTHONPATH=VAGEN .venv-integrations"),
    "verl_cpu": ("verl.experimental.agent_loop", ".venv-verl"),
    "test_verl": ("verl.experimental.agent_loop", ".venv-verl"),  # EasyR1's package is also called verl
    "test_lmms_eval": ("lmms_eval", ".venv-lmms-eval"),
}
"""Required modules, and the environment that has them, by test folder or file."""
if find_spec("torch") is not None:
    os.environ.update(VARIABLES)


def needed(path: Path) -> tuple[str, str]:
    return NEEDED.get(path.parent.name) or NEEDED.get(path.stem) or ("vlmgym", ".venv")


def is_installed(modules: str) -> bool:
    try:
        return all(find_spec(module) is not None for module in modules.split())
    except ModuleNotFoundError:  # the parent package is missing
        return False


class Skipped(pytest.File):
    """A test file whose environment is missing."""

    def collect(self) -> Iterator[pytest.Item]:
        module, environment = needed(self.path)
        pytest.skip(f"no {module}: run {environment}/bin/python -m pytest -W default", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Skip test files whose dependencies are installed only in another virtual environment."""
    module, _ = needed(module_path)
    return None if is_installed(module) else Skipped.from_parent(parent, path=module_path)


def pytest_configure(config: pytest.Config) -> None:
    """Keep pytest-xdist from sorting groups by their number of tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, run each file in one process, and all tests that use vLLM in the same process."""
    groups: dict[pytest.Item, str] = {}
    for item in items:
        asks = {"vllm_server", "tiny_checkpoint"}.intersection(getattr(item, "fixturenames", ()))
        groups[item] = "vllm" if asks else item.path.stem
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: LONGEST.index(groups[item]) if groups[item] in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def quick_commands() -> Iterator[None]:
    """Do not plot curves in this process, and parse the source of options once: both take longer than a few turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmgym.evaluation.curves.draw_curves", lambda *_: b"")
        patch.setattr("inspect.getsource", cache(inspect.getsource))
        yield


@pytest.fixture
def lamps(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example game of the documentation, registered only during the test."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    yield importlib.import_module("lamps")
    del sys.modules["lamps"], registry._registered["lamps-v0"], gymnasium.registry["vlmgym/lamps-v0"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from tests.browser import chromium  # Playwright is not in .venv-train

    with chromium() as opened:
        yield opened


@pytest.fixture
def watched(browser: Any) -> Iterator[Any]:
    """A page in the browser, see `tests.browser.Watched`."""
    from tests.browser import Watched

    with browser.new_page(viewport={"width": 1280, "height": 900}) as opened:
        yield Watched(opened)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command or a script in `tmp_path`, in this process, because a new one would need seconds for imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*args: object, script: Path | None = None) -> Done:
        words = [*map(str, args)]
        if script is None:
            return in_process(lambda: main(words), capfd)
        monkeypatch.setattr(sys, "argv", [str(script), *words])
        return in_process(lambda: runpy.run_path(str(script), run_name="__main__"), capfd)

    return run


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the user's API key, server and proxies from the policy `openai`, and shorten its retry backoff."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr("vlmgym.policies.openai.client.FIRST_BACKOFF", 0.01)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a data cache that no other test uses."""
    monkeypatch.setenv("VLMGYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny, randomly initialised Qwen3-VL."""
    out = tmp_path_factory.mktemp("checkpoint") / "tiny"
    run_training("-m", "tests.tiny_model", "qwen3_vl", str(out))
    return out


@pytest.fixture(scope="session")
def vllm_server(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    """A real vLLM server with the tiny checkpoint, shared by all tests of a run."""
    with serving.serve(tiny_checkpoint, tmp_path_factory.mktemp("vllm")) as server:
        yield server


@pytest.fixture
def make_envs() -> Iterator[Callable[..., GameVectorEnv]]:
    """Make vector environments that are closed after the test."""
    made = []

    def make(*args: Any, **kwargs: Any) -> GameVectorEnv:
        made.append(make_vec(*args, **kwargs))
        return made[-1]

    yield make
    for envs in made:
        envs.close()
