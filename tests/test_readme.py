"""What README says is so: its links, options, commands and Python."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vlmgym.evaluation.budget import Budget
from vlmgym.evaluation.config import EvalConfig
from vlmgym.sandbox.registry import game_ids

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    missing = [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()]
    assert links
    assert not missing


def test_files_that_are_named_exist() -> None:
    named = re.findall(r"\b(?:vlmgym|assets|examples|docs|tests)/[\w/]+\.\w+", README)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_options_are_those_of_the_scripts_with_their_defaults() -> None:
    fields = [*dataclasses.fields(EvalConfig), *dataclasses.fields(Budget)]
    defaults = {field.name.replace("_", "-"): field.default for field in fields if field.name != "budget"}
    table = re.findall(r"^\| (`--.*?) \| (.*?) \|", README, re.MULTILINE)
    told: set[str] = set()
    for names, default in table:
        for option in re.findall(r"`--([a-z-]+)", names):
            told.add(option.removeprefix("no-"))
            if default.isdecimal():
                assert defaults[option] == int(default), option
    options = {"set" if name in ("knobs", "set") else name for name in defaults}
    assert told == options


def test_game_of_a_user_is_the_example_and_small() -> None:
    example = (ROOT / "examples" / "lamps.py").read_text()
    assert example in PYTHON
    assert len(example.splitlines()) < 60


@pytest.mark.slow
@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.splitlines()[0])
def test_python_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {"PYTHONPATH": str(ROOT / "examples")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_every_game_has_its_script() -> None:
    for game_id in game_ids():
        assert f"vlmgym/test/eval_{game_id.split('-')[0]}.py" in README
