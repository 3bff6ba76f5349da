"""The lock of GPU machines satisfies what vlmgym and training ask for."""

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "training" / "requirements"
PYTHONS = ("3.11", "3.12", "3.13")


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
