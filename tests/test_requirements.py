"""The lock files for GPU machines satisfy the requirements of vlmgym and of training."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
"""Python versions that setup.sh accepts on GPU machines."""
LOCKS = {"train": (("openai", "tasks", "train", "trl"), "2_31"), "easyr1": (("openai", "tasks"), "2_28")}
"""Extras of vlmgym and the version of manylinux that each lock file was resolved with."""
PAGES = ROOT.glob("docs/integrations/*.md")
DOCUMENTED = {extras for page in PAGES for extras in re.findall(r"install -e '[^']*\[(.+?)\]'", page.read_text())}
"""Sets of extras that the integration pages install together."""


def requirements(path: Path) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-r")]


def locked(name: str) -> dict[str, Requirement]:
    return {canonicalize_name(pin.name): pin for pin in requirements(FOLDER / f"{name}_gpu.txt")}


def project(*extras: str) -> list[Requirement]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*table["dependencies"], *(text for extra in extras for text in table["optional-dependencies"][extra])]
    return [wanted for wanted in map(Requirement, texts) if canonicalize_name(wanted.name) != "vlmgym"]


@pytest.mark.parametrize("name", LOCKS)
def test_every_version_of_the_lock_is_exact(name: str) -> None:
    for pin in locked(name).values():
        assert [spec.operator for spec in pin.specifier] == ["=="], pin


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_the_direct_requirements(name: str, python: str) -> None:
    pins = locked(name)
    for wanted in [*requirements(FOLDER / f"{name}_gpu.in"), *project(*LOCKS[name][0])]:
        if wanted.marker is None or wanted.marker.evaluate({"python_version": python}):
            (version,) = pins[canonicalize_name(wanted.name)].specifier
            assert wanted.specifier.contains(version.version), wanted


def resolve(python: str, *args: str, manylinux: str = "2_28") -> list[str]:
    """Resolve requirements for a Python version on Linux, without installing them; return the pins."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if uv is None:
        lacking("uv is not installed")
    command = [uv, "pip", "compile", "--no-annotate", "--no-header", "--quiet", "pyproject.toml", *args]
    command += ["--python-platform", f"x86_64-manylinux_{manylinux}", "--python-version", python]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    if done.returncode == 2:
        lacking(f"the package index does not respond: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_wheels_of_all_that_is_needed(name: str, python: str, tmp_path: Path) -> None:
    """Resolve the direct requirements again, allowing only the versions of the lock file."""
    pins = [line for line in (FOLDER / f"{name}_gpu.txt").read_text().splitlines() if "==" in line]
    (tmp_path / "pins.txt").write_text("\n".join(pins))
    extras, manylinux = LOCKS[name]
    args = ["--constraint", str(tmp_path / "pins.txt"), *(f"--extra={extra}" for extra in extras)]
    args += ["--only-binary", ":all:", "--no-binary", "antlr4-python3-runtime"]  # this package has no wheel
    assert sorted(resolve(python, *args, str(FOLDER / f"{name}_gpu.in"), manylinux=manylinux)) == sorted(pins)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("CI") != "true", reason="takes a minute: CI=true runs it")
def test_extras_of_integrations_can_be_installed_as_documented() -> None:
    cases = [(extras.split(","), python) for extras in sorted(DOCUMENTED) for python in PYTHONS]
    with ThreadPoolExecutor(len(cases)) as pool:  # the cases mostly wait for the package index
        found = [pool.submit(resolve, python, *(f"--extra={name}" for name in names)) for names, python in cases]
    for (names, _), pins in zip(cases, found):
        wanted = {canonicalize_name(each.name) for each in project(*names) if not each.marker}
        assert wanted <= {pin.partition("==")[0] for pin in pins.result()}
