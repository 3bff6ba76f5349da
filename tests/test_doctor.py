"""`vlmgym doctor`: extras and their missing packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vlmgym.cli.doctor import EXTRAS, missing
from vlmgym.cli.main import main

QUICK_START = (Path(__file__).parents[1] / "docs" / "quick_start.md").read_text()
PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text()
FOR_DEVELOPERS = {"bench", "dev", "docs", "test"}


def test_every_extra_for_users_is_listed() -> None:
    section = PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)) - FOR_DEVELOPERS == set(EXTRAS)


def test_extras_are_documented() -> None:
    assert "".join(f"| `{name}` | {adds} |\n" for name, adds in EXTRAS.items()) in QUICK_START


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    needs = [
        "numpy>=1",
        "scipy>=99; extra == 'data'",
        "scipy>=99; extra == 'tasks'",
        "vlmgym[tasks]; extra == 'data'",
        "nosuchpackage; extra == 'tasks'",
    ]
    monkeypatch.setattr("vlmgym.cli.doctor.requires", lambda _: needs)
    assert missing("data") == ["scipy>=99", "nosuchpackage"]
    assert missing("openai") == []
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "scipy>=99" in shown
    assert re.search(r"python \d.*numpy \d", shown)
