"""`vlmgym new-game`: the package that it writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vlmgym.testing import check_game


@pytest.mark.slow
def test_a_new_game_passes_its_tests_and_every_check(run: Any, tmp_path: Path) -> None:
    assert run("new-game", "marbles").code == 0
    folder = tmp_path / "marbles"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not contract or images"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r'^"marbles-v0" = "marbles:Marbles"$', (folder / "pyproject.toml").read_text(), re.MULTILINE)
    sys.path.insert(0, str(folder))
    from marbles import Marbles  # type: ignore[import-not-found]

    assert check_game(Marbles) == []


@pytest.mark.parametrize("name", ["2048", "Marbles", "my-game", "class", "../up", "swap", ""])
def test_names_that_are_not_modules_or_taken_are_rejected(run: Any, tmp_path: Path, name: str) -> None:
    done = run("new-game", name)
    assert done.code == 2
    assert "name" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_kept(run: Any, tmp_path: Path) -> None:
    (tmp_path / "marbles").mkdir()
    (tmp_path / "marbles" / "notes.txt").write_text("mine")
    done = run("new-game", "marbles")
    assert done.code == 2
    assert [file.name for file in (tmp_path / "marbles").iterdir()] == ["notes.txt"]
