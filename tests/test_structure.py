"""The layers of the package, which import only downwards, and the length of files."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("vlmgym", "training")
    for path in (ROOT / package).rglob("*.py")
}

LAYERS = (
    ("vlmgym.errors",), ("vlmgym.checks", "vlmgym.interrupts", "vlmgym.statistics", "vlmgym.terminal"),
    ("vlmgym.workers",), ("vlmgym.sandbox.rendering",), ("vlmgym.sandbox.datasets",), ("vlmgym.sandbox.core",),
    ("vlmgym.sandbox.games",), ("vlmgym.sandbox.presets",), ("vlmgym.sandbox.registry",),
    ("vlmgym.sandbox.envs", "vlmgym.sandbox.options", "vlmgym.sandbox.questions"), ("vlmgym.testing",),
    ("vlmgym.records",), ("vlmgym.policies", "vlmgym.curriculum"), ("vlmgym.rollout",),
    ("vlmgym.api", "vlmgym.evaluation"), ("vlmgym.cli", "vlmgym.integrations"),
    ("vlmgym.__main__", "vlmgym.test", "training"),
)  # fmt: skip
"""From the bottom up. A module imports its own package and the layers below."""

GATEWAYS = {"vlmgym", "vlmgym.sandbox"}
"""Packages above several layers. Their names are for users; of them, modules take only the version."""

INTEGRATIONS = {module for module in MODULES if module.startswith("vlmgym.integrations")}
"""Adapters to other libraries, which use vlmgym as users do."""


MOST_LINES = 400

MODULE_NAME = re.compile(r"((?:vlmgym|training)(?:\.\w+)+)(?::\w+)?")


@cache
def layer_of(module: str) -> tuple[int, str]:
    """Return the layer of a module and the package in it."""
    for number, layer in enumerate(LAYERS):
        for package in layer:
            if f"{module}.".startswith(f"{package}."):
                return number, package
    raise AssertionError(f"{module} is in no layer")


@cache
def imported_by(module: str, strings: bool = True) -> frozenset[str]:
    """Return the modules that a source imports, also inside functions and for types only, or names in a string."""
    names: set[str] = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif strings and isinstance(node, ast.Constant) and (named := MODULE_NAME.fullmatch(str(node.value))):
            names.add(named[1])
    found = set()
    for name in names:
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found.add(name)
    return frozenset(found - {"", module})


@pytest.mark.parametrize("module", sorted(set(MODULES) - GATEWAYS))
def test_modules_import_downwards(module: str) -> None:
    layer, package = layer_of(module)
    for name in imported_by(module) - GATEWAYS:
        other_layer, other_package = layer_of(name)
        assert other_layer < layer or other_package == package, f"{module} imports {name}"


def test_training_imports_no_internals_of_evaluation() -> None:
    for module in MODULES:
        if module.startswith("training"):
            internals = {name for name in imported_by(module) if name.startswith("vlmgym.evaluation.")}
            assert not internals, module


def test_integrations_import_only_the_public_interface() -> None:
    for module in INTEGRATIONS:
        assert imported_by(module) <= {"vlmgym", "vlmgym.errors"}, module


def test_packages_above_layers_import_only_the_sandbox_and_the_public_interface() -> None:
    for module in GATEWAYS:
        for name in imported_by(module) - {"vlmgym.api", *GATEWAYS}:
            assert layer_of(name)[0] <= layer_of("vlmgym.sandbox.envs")[0], f"{module} imports {name}"


def test_no_import_cycles() -> None:
    done = set(GATEWAYS)

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(imported_by(module, strings=False) & set(MODULES)):
                walk(name, (*path, module))
            done.add(module)

    for module in sorted(MODULES):
        walk(module, ())


def test_files_are_short() -> None:
    folders = ("vlmgym", "training", "tests", "benchmarks", "examples", "assets")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}
