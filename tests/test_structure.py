"""Which parts of the package may know which: read from the sources, without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "vlmgym").rglob("*.py")
}


@cache
def imported_by(module: str) -> frozenset[str]:
    """The modules and packages that a module's source names in imports, types only included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            names.update(part if part in MODULES else part.rpartition(".")[0] for part in parts)
    return frozenset(names)


def reached_from(package: str) -> Iterator[tuple[str, str]]:
    """Every (module, import) on the way from the modules of a package."""
    todo = [module for module in MODULES if module.startswith(f"{package}.")]
    assert todo, f"there is no {package}"
    seen = set(todo)
    for module in todo:  # grows
        for name in imported_by(module):
            yield module, name
            if name in MODULES and name not in seen:
                seen.add(name)
                todo.append(name)


@pytest.mark.parametrize("package", ["vlmgym.sandbox.rules", "vlmgym.sandbox.oracles"])
def test_rules_and_oracles_know_nothing_of_games_and_images(package: str) -> None:
    strangers = ("pygame.", "vlmgym.sandbox.games.", "vlmgym.sandbox.rendering.", "vlmgym.sandbox.core.game.")
    assert not [edge for edge in reached_from(package) if f"{edge[1]}.".startswith(strangers)]


def test_the_sandbox_knows_nothing_of_policies_evaluation_and_training() -> None:
    strangers = ("vlmgym.policies.", "vlmgym.evaluation.", "training.")
    assert not [edge for edge in reached_from("vlmgym.sandbox") if f"{edge[1]}.".startswith(strangers)]


def test_policies_know_nothing_of_evaluation_and_training() -> None:
    strangers = ("vlmgym.evaluation.", "training.")
    assert not [edge for edge in reached_from("vlmgym.policies") if f"{edge[1]}.".startswith(strangers)]


def test_vlmgym_never_imports_training() -> None:
    assert not [
        (module, name) for module in MODULES for name in imported_by(module) if f"{name}.".startswith("training.")
    ]


def test_no_import_goes_round_in_circles() -> None:
    done = {"vlmgym"}  # it gathers what users import, and modules below it ask for its version only

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module not in done:
            for name in sorted(imported_by(module) & set(MODULES)):
                walk(name, (*way, module))
            done.add(module)

    for module in sorted(MODULES):
        walk(module, ())
