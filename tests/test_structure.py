"""Layers of the package import only downwards."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "vlmgym").rglob("*.py")
}

LAYERS = (
    ("vlmgym.errors",), ("vlmgym.checks", "vlmgym.interrupts", "vlmgym.statistics", "vlmgym.terminal"),
    ("vlmgym.workers",), ("vlmgym.sandbox.drawing",), ("vlmgym.sandbox.data",), ("vlmgym.sandbox.core",),
    ("vlmgym.sandbox.games",), ("vlmgym.sandbox.presets",), ("vlmgym.sandbox.registry",),
    ("vlmgym.sandbox.envs", "vlmgym.sandbox.options", "vlmgym.sandbox.questions"), ("vlmgym.sandbox",),
    ("vlmgym.testing",), ("vlmgym.runs",), ("vlmgym.policies", "vlmgym.curriculum"), ("vlmgym.rollout",),
    ("vlmgym.api", "vlmgym.evaluation"), ("vlmgym",), ("vlmgym.benchmark",), ("vlmgym.pages",), ("vlmgym.cli.console",),
    ("vlmgym.training",),
    ("vlmgym.cli", "vlmgym.integrations"), ("vlmgym.__main__", "vlmgym.test"),
)  # fmt: skip
"""Layers from the bottom up. A module may import its own package and the layers below."""

GATEWAYS = {"vlmgym", "vlmgym.sandbox"}
"""Packages whose own modules are in lower layers; those modules may import only `__version__` from their package."""

INTEGRATIONS = {module for module in MODULES if module.startswith("vlmgym.integrations")}
"""Adapters to other libraries, which may use only the public interface of vlmgym."""

LOADERS = {
    "vlmgym.training.easyr1.worker",  # classes of transformers
    "vlmgym.cli.main",  # commands
    "vlmgym.evaluation",  # names of the package, on first use
    "vlmgym.policies",  # policies
    "vlmgym.policies.custom",  # users' functions
    "vlmgym.runs.loggers",  # TensorBoard and wandb
    "vlmgym.sandbox.games.gym.envs",  # packages with environments
    "vlmgym.sandbox.registry",  # games
}
"""Modules that import others by name or location."""

BY_NAME = {
    "__builtins__", "__import__", "builtins", "eval", "exec", "import_module", "importlib", "module_from_spec", "runpy",
}  # fmt: skip
"""Names through which any module can be imported; only `LOADERS` may use them."""

MODULE_NAME = re.compile(r"(?<![\w.])vlmgym(?:\.\w+)+")


@cache
def layer_of(module: str) -> tuple[int, str]:
    """Return the index of a module's layer, and the package in that layer that contains the module."""
    for number, layer in enumerate(LAYERS):
        for package in layer:
            if module == package or (package not in GATEWAYS and module.startswith(f"{package}.")):
                return number, package
    raise AssertionError(f"{module} is in no layer")


def module_of(name: str) -> str:
    """Return the module that a dotted name is in, or an empty string if it is not a module of this project."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def imports_of(source: str, mentions: bool = True) -> set[str]:
    """Return the names that a source file imports anywhere, or mentions in strings other than docstrings."""
    tree, names = ast.parse(source), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names |= {alias.name, alias.name.partition(".")[0]}  # `import a.b` also binds a
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports without leading dots"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
            node.module = ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    if mentions:  # "vlmgym.json" is not a module
        names |= {name for name in MODULE_NAME.findall(ast.unparse(tree)) if "." in module_of(name)}
    return names - {"vlmgym.__version__"}


@cache
def imported_by(module: str, mentions: bool = True) -> frozenset[str]:
    """Return the other modules of the project that a module imports or mentions."""
    names = imports_of(MODULES[module].read_text(encoding="utf-8"), mentions)
    return frozenset(map(module_of, names)) - {"", module}


def faults(module: str, source: str) -> list[str]:
    """Return forbidden imports of a module, and imports at run time that this test cannot follow."""
    layer, package = layer_of(module)
    found = []
    for name in imports_of(source):
        if other := module_of(name):
            other_layer, other_package = layer_of(other)
            if other_layer >= layer and other_package != package:
                found.append(name)
    if module not in LOADERS:
        nodes = list(ast.walk(ast.parse(source)))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        found += BY_NAME & used.union(node.name for node in nodes if isinstance(node, ast.alias))
    return found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_import_downwards(module: str) -> None:
    assert not faults(module, MODULES[module].read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "from vlmgym.evaluation.run import run_games",
        "from vlmgym import make_dataset",
        "import vlmgym; vlmgym.api.score",
        "import vlmgym.errors as errors",
        "from vlmgym.sandbox import make_game",
        "import_module('vlmgym.evaluation.run')",
        "name = 'run'; importlib.import_module(f'vlmgym.evaluation.{name}')",
        "from importlib import import_module as load; load('vlm' + 'gym.evaluation')",
        "__import__('vlm' + 'gym.evaluation')",
        "exec('from vlmgym import score')",
        "run = 'python -m vlmgym.cli.main --version'",
    ],
)
def test_imports_that_bypass_a_layer_are_found(source: str) -> None:
    assert faults("vlmgym.sandbox.core.memory", source)


def test_integrations_import_only_the_public_interface() -> None:
    for module in INTEGRATIONS:
        assert imported_by(module) <= {"vlmgym", "vlmgym.errors"}, module


def test_vlmgym_imports_only_the_sandbox_and_the_public_interface() -> None:
    for name in imported_by("vlmgym") - {"vlmgym.api"}:
        assert layer_of(name) <= layer_of("vlmgym.sandbox"), name


def test_no_import_cycles() -> None:
    done = set[str]()

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(imported_by(module, mentions=False)):
                walk(name, (*path, module))
            done.add(module)

    for module in sorted(MODULES):
        walk(module, ())


def test_patterns_ignore_case_only_within_ascii() -> None:
    """Without `re.ASCII`, `re.IGNORECASE` also lets a dotless i match `i`, which `str.lower` does not convert."""
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                parts = [part for argument in (*node.args, *node.keywords) for part in ast.walk(argument)]
                flags = {part.attr for part in parts if isinstance(part, ast.Attribute)}
                assert not flags & {"I", "IGNORECASE"} or flags & {"A", "ASCII"}, f"{module}, line {node.lineno}"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "(?i" not in node.value, f"{module}, line {node.lineno}"
