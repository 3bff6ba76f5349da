"""Code in the README and the documentation: commands have valid options, and Python runs."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tyro
from PIL import Image

from tests.commands import BARE
from tests.doc_pages import NEEDS, PAGES, PROGRAMS, ROOT, blocks, commands, name, shell_blocks
from vlmgym.benchmark.suites import read_suite
from vlmgym.cli.eval import _played
from vlmgym.cli.main import COMMANDS, main
from vlmgym.errors import UsageError
from vlmgym.evaluation import EvalConfig
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.config import read_config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GAME_GUIDE = ROOT / "docs" / "adding_a_game.md"
LAMPS = (ROOT / "examples" / "lamps.py").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ARGUMENTS = {
    "bash": "training/scripts and setup.sh are tested by test_training_scripts.py and test_setup.py",
    "benchmarks.critic": "needs torch: tests/in_training/test_doc_commands.py",
    "benchmarks.train_speed": "needs torch: tests/in_training/test_doc_commands.py",
}
"""Programs and modules whose arguments are not checked in this file, with the reason."""


class Parsed(BaseException):
    """Raised instead of running a program, once its command line has been parsed."""


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make all commands of vlmgym only parse and check their options."""

    def check(names: Sequence[str], config: EvalConfig, *_: object, **options: Any) -> None:
        if options.get("suite") is not None:
            read_suite(options["suite"]).configure(config)
        elif options.get("played") is None:
            try:
                _played(names, config, options.get("preset"), options.get("curriculum"))
            except UsageError as error:
                if "gymnasium[" not in str(error):  # an optional package is missing
                    raise

    monkeypatch.setattr("vlmgym.cli.eval.run_evaluation", check)
    trained = SimpleNamespace(reward=RewardConfig())
    for function, value in (("_trained_options", ()), ("trained_games", ()), ("TrainedRecord.read", trained)):
        monkeypatch.setattr(f"vlmgym.cli.eval.{function}", lambda *_, value=value: value)
    for command in COMMANDS.values():
        if command.action not in ("run_eval", "train"):
            monkeypatch.setattr(f"{command.module}.{command.action}", lambda _: None)
    monkeypatch.setattr("vlmgym.cli.train.train", read_config)
    monkeypatch.chdir(tmp_path)
    (curriculum, _) = blocks(ROOT / "docs" / "curricula.md", "toml")
    Path("my.toml").write_text(curriculum)


def parse_module(module: str, args: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a module until it has parsed its command line, then raise `Parsed`."""
    parse = tyro.cli

    def stop(*given: Any, **options: Any) -> None:
        parse(*given, **options)
        raise Parsed

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module has been imported by another test
        patch.setattr("tyro.cli", stop)
        patch.setattr(sys, "argv", [module, *args])
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def check_command(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the arguments of a command; raise `SystemExit` if one is invalid."""
    program, *args = words
    assert program in PROGRAMS
    for word in words:
        if re.match(r"(assets|benchmarks|docs|examples|tests|training|vlmgym/test)/[\w/.]+$", word):
            assert (ROOT / word).exists() or word == "docs/_build", word
    if program == "vlmgym" and "$EPISODES" not in args:
        main(args)
    elif program == "bash" and args[0] == "training/scripts/local_2048.sh":
        main(["train", *args[1:]])
    elif program == "python" and args[0] == "-m" and args[1].startswith(("benchmarks.", "tests.")):
        assert importlib.util.find_spec(args[1]), args[1]
        if args[1].startswith("benchmarks.") and args[1] not in ARGUMENTS:
            with pytest.raises(Parsed):
                parse_module(args[1], args[2:], monkeypatch)
    elif program == "python" and args[:3] == ["-m", "pip", "install"]:
        for extra in re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*)\]", args[-1]))):
            assert extra in PROJECT["optional-dependencies"], extra
    elif program == "python" and args[0].startswith("vlmgym/test/"):
        monkeypatch.setattr(sys, "argv", args)
        runpy.run_path(str(ROOT / args[0]), run_name="__main__")
    elif program == "python" and "examples/" in args[0]:
        source = (ROOT / "examples" / args[0].partition("examples/")[2]).read_text()
        options = [word for word in args if word.startswith("--")]
        assert [option for option in options if f'"{option}"' not in source] == []


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_are_valid(page: Path, parsers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in commands(page):
        try:
            check_command(words, monkeypatch)
        except SystemExit as error:
            if error.code:
                pytest.fail(f"{page}: {words}")


def test_commands_are_shell() -> None:
    script = "\n".join(block for page in PAGES for block in shell_blocks(page))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_options_in_the_text_exist() -> None:
    sources = (
        path
        for folder in ("vlmgym", "training", "benchmarks", "examples", "tests")
        for path in (ROOT / folder).rglob("*")
    )
    files = [ROOT / "setup.sh", *(path for path in sources if path.suffix in (".py", ".sh"))]
    words = {word for path in files for word in re.findall(r"[a-z][\w-]*", path.read_text())}
    for page in PAGES:
        if page.parent.name == "integrations":  # options of other programs
            continue
        text = re.sub(r"^(```.*?^```$| {4}.*?$)", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for code in re.findall(r"`([^`]+)`", text):
            if "pip" in code.split():
                continue
            for option in re.findall(r"(?<!\S)--([a-z][\w.-]*)", code):
                parts = option.removeprefix("no-").rstrip(".").split(".")
                assert all({part, part.replace("-", "_")} & words for part in parts), f"{page}: --{option}"
            for command in re.findall(r"^(?:\.venv/bin/)?vlmgym ([a-z][\w-]*)", code):
                assert command in COMMANDS, f"{page}: {code}"


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
