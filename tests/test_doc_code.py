"""Code in the README and the documentation: commands have valid options, and Python runs."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tyro
from PIL import Image

from tests.commands import BARE
from tests.doc_pages import NEEDS, PAGES, PROGRAMS, ROOT, blocks, commands, name, shell_blocks
from vlmgym.cli.main import main
from vlmgym.errors import UsageError

GAME_GUIDE = ROOT / "docs" / "adding_a_game.md"
LAMPS = (ROOT / "examples" / "lamps.py").read_text()
NEEDS_TORCH = {"benchmarks.critic", "benchmarks.learn_rl", "benchmarks.train_speed"}
"""Modules that cannot be imported here."""


class Parsed(BaseException):
    """Raised instead of running a program, once its command line has been parsed."""


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all programs stop when they have parsed their command line."""
    parse = tyro.cli

    def stop(*args: Any, **options: Any) -> None:
        parse(*args, **options)
        raise Parsed

    monkeypatch.setattr("tyro.cli", stop)
    monkeypatch.setattr("vlmgym.cli.eval._trained_options", lambda *_: ({}, {}))


def run_program(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program of this project; do nothing for others."""
    program, *args = words
    assert program in PROGRAMS
    for word in words:
        if re.match(r"(assets|benchmarks|docs|examples|tests|training|vlmgym/test)/[\w/.]+$", word):
            assert (ROOT / word).exists() or word == "docs/_build", word
    if program == "vlmgym" and "$EPISODES" not in args:
        main(args)
    elif program == "bash" and args[0] == "training/scripts/local_2048.sh":
        main(["train", *args[1:]])
    elif program == "python" and args[0] == "-m" and args[1].startswith("benchmarks.") and args[1] not in NEEDS_TORCH:
        monkeypatch.setattr(sys, "argv", args[1:])
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    elif program == "python" and args[0].startswith("vlmgym/test/"):
        monkeypatch.setattr(sys, "argv", args)
        runpy.run_path(str(ROOT / args[0]), run_name="__main__")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # imported by another test
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_have_valid_options(page: Path, parsers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in commands(page):
        with suppress(Parsed):
            run_program(words, monkeypatch)  # raises SystemExit for invalid options


def test_commands_are_shell() -> None:
    script = "\n".join(block for page in PAGES for block in shell_blocks(page))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page != GAME_GUIDE], ids=name)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page in order, as in one session; blocks that cannot run here must still parse."""
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("photo.jpg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in blocks(page, "python"):
        if code.startswith(NEEDS):
            check_imports(code)
            continue
        if found := re.match(r"# (\w+\.py)$", code, re.MULTILINE):
            Path(found[1]).write_text(code)
        if "logs/my_run" in code:
            main(["eval", "2048", *BARE, "--output-dir", "logs/my_run"])
        exec(compile(code, str(page), "exec"), names)


@pytest.mark.slow
def test_python_of_the_custom_game_runs(tmp_path: Path) -> None:
    """The code registers a game, so it runs in a separate process."""
    (tmp_path / "lamps.py").write_text(LAMPS)
    first, *others = blocks(GAME_GUIDE, "python")
    assert first == LAMPS
    assert len(LAMPS.splitlines()) < 60
    (tmp_path / "script.py").write_text("\n".join(others))
    command = [sys.executable, "-W", "error", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def check_imports(code: str) -> None:
    """Check that all names that the code imports from vlmgym exist, except in modules that need a missing package."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vlmgym"):
            assert importlib.util.find_spec(node.module or ""), node.module
            try:
                module = importlib.import_module(node.module or "")
            except (ImportError, UsageError):
                continue
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
