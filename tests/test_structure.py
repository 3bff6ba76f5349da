"""The layers of the package, as [tool.importlinter] in pyproject.toml describes them, and its regular expressions."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_modules_import_only_lower_layers() -> None:
    pytest.importorskip("importlinter")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_patterns_ignore_case_only_within_ascii() -> None:
    """Without `re.ASCII`, `re.IGNORECASE` also lets a dotless i match `i`, which `str.lower` does not convert."""
    for path in (ROOT / "vlmgym").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                parts = [part for argument in (*node.args, *node.keywords) for part in ast.walk(argument)]
                flags = {part.attr for part in parts if isinstance(part, ast.Attribute)}
                assert not flags & {"I", "IGNORECASE"} or flags & {"A", "ASCII"}, f"{path}, line {node.lineno}"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "(?i" not in node.value, f"{path}, line {node.lineno}"
