"""The lock of GPU machines satisfies what vlmgym and training ask for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.needed import lacking

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "training" / "requirements"
PYTHONS = ("3.11", "3.12")
"""Versions that setup.sh accepts on GPU machines."""


def requirements(path: Path) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-r")]


def locked() -> dict[str, Requirement]:
    return {canonicalize_name(pin.name): pin for pin in requirements(FOLDER / "gpu.txt")}


def project(*extras: str) -> list[Requirement]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*table["dependencies"], *(text for extra in extras for text in table["optional-dependencies"][extra])]
    return [wanted for wanted in map(Requirement, texts) if canonicalize_name(wanted.name) != "vlmgym"]


def test_every_version_of_the_lock_is_exact() -> None:
    for pin in locked().values():
        assert [spec.operator for spec in pin.specifier] == ["=="], pin


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_the_direct_requirements(python: str) -> None:
    pins = locked()
    for wanted in [*requirements(FOLDER / "gpu.in"), *project("openai", "tasks", "train", "transformers")]:
        if wanted.marker is None or wanted.marker.evaluate({"python_version": python}):
            (version,) = pins[canonicalize_name(wanted.name)].specifier
            assert wanted.specifier.contains(version.version), wanted


def test_flash_attention_is_built_for_every_python() -> None:
    builds = requirements(FOLDER / "flash_attn.txt")
    for python in PYTHONS:
        (build,) = (pin for pin in builds if pin.marker and pin.marker.evaluate({"python_version": python}))
        assert f"-cp{python.replace('.', '')}-" in (build.url or "")
    assert len(builds) == len(PYTHONS)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_wheels_of_all_that_is_needed(python: str, tmp_path: Path) -> None:
    """Resolve the direct requirements again, with the lock as the only accepted versions."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if uv is None:
        lacking("uv is not installed")
    pins = [line for line in (FOLDER / "gpu.txt").read_text().splitlines() if "==" in line]
    (tmp_path / "pins.txt").write_text("\n".join(pins))
    command = [uv, "pip", "compile", "--no-annotate", "--no-header", "--quiet"]
    command += ["--constraint", str(tmp_path / "pins.txt")]
    command += ["--only-binary", ":all:", "--no-binary", "antlr4-python3-runtime"]  # of which no wheel exists
    command += ["--python-platform", "x86_64-manylinux_2_28", "--python-version", python]
    command += ["--extra", "openai", "--extra", "tasks", "--extra", "train", "pyproject.toml", str(FOLDER / "gpu.in")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    if done.returncode == 2:
        lacking(f"the package index does not respond: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(pins)
