"""The wheel and the source distribution of vlmgym, installed without a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.needed import lacking

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
ADAPTERS = [path.stem for path in sorted((ROOT / "vlmgym" / "integrations").glob("[!_]*.py"))]

pytestmark = pytest.mark.slow


def run(command: Sequence[object], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def pip(*args: object) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode:
        lacking(f"pip cannot install: {done.stderr}")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build a source distribution of the tracked files, and a wheel from that distribution."""
    folder = tmp_path_factory.mktemp("build")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    pip("install", "--quiet", "--target", folder / "backend", *PROJECT["build-system"]["requires"])

    def build(what: str, source: Path) -> Path:
        out = folder / what
        out.mkdir()
        done = run([sys.executable, "-c", BUILD, f"build_{what}", out], source, PYTHONPATH=str(folder / "backend"))
        assert done.returncode == 0, done.stderr
        (made,) = out.iterdir()
        return made

    sdist = build("sdist", folder / "source")
    (folder / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", sdist, "-C", folder / "unpacked"], check=True)
    (source,) = (folder / "unpacked").iterdir()
    return sdist, build("wheel", source)


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty virtual environment that takes its dependencies from the current one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip("--python", folder / "bin" / "python", "install", "--quiet", "--no-deps", "--no-index", built[1])
    (site,) = folder.glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_packages_contain_all_tracked_files(built: tuple[Path, Path]) -> None:
    modules = [f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]]
    command = ["git", "ls-files", "vlmgym", *modules]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as sources:
        source = {member.name.partition("/")[2] for member in sources.getmembers() if member.isfile()}
    assert installed == set(listed.split())
    assert installed <= source
    assert {"LICENSE", "README.md", "pyproject.toml"} <= source


def test_evaluations_work_without_a_checkout(environment: Path, tmp_path: Path) -> None:
    command = [environment / "bin" / "vlmgym", "eval", "2048", "--policy", "random", "--episodes", "1"]
    done = run([*command, "--max-turns", "2", "--workers", "0", "--videos", "0", "--output-dir", "out"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    code = "import vlmgym; print(vlmgym.__file__); [vlmgym.Episode(game, 0).images for game in vlmgym.game_ids()]"
    done = run([environment / "bin" / "python", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(environment)
    done = run([environment / "bin" / "vlmgym", "train", "--help"], tmp_path)  # reads a preset; torch is not needed
    assert "--settings" in done.stdout, done.stderr


def test_uvx_runs_the_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        lacking("uv is not installed")
    evaluation = ["eval", "2048", "--policy", "random", "--episodes", "1", "--max-turns", "5", "--output-dir", "out"]
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = run([uv, "tool", "run", "--from", built[1], "vlmgym", *evaluation], tmp_path, **variables)
    if "Failed to fetch" in done.stderr or "dns error" in done.stderr:
        lacking(f"uv cannot download the dependencies: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"run.json", "episodes.jsonl", "report.html"}


IMPORT_ALL = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"vlmgym.integrations.{name}")
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


def test_adapters_are_imported_or_name_their_extra(environment: Path, tmp_path: Path) -> None:
    done = run([environment / "bin" / "python", "-c", IMPORT_ALL, *ADAPTERS], tmp_path)
    assert done.returncode == 0, done.stderr
    for adapter, error in json.loads(done.stdout).items():
        extra = adapter.replace("_", "-")
        if extra in EXTRAS:
            assert error.endswith(f": run {environment}/bin/python -m pip install 'vlmgym[{extra}]'")
        else:  # not on PyPI, so there is no extra: the adapter is used in its framework's environment
            assert error.startswith("ModuleNotFoundError: No module named")
