"""Commands of benchmarks of training in the documentation have valid options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_pages import PAGES, commands, name
from tests.test_doc_code import Parsed, parse_module

MODULES = ("benchmarks.critic", "benchmarks.train_speed")


@pytest.mark.parametrize("page", [page for page in PAGES if "-train/bin/" in page.read_text()], ids=name)
def test_benchmark_commands_are_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        if words[:2] == ["python", "-m"] and words[2] in MODULES:
            with pytest.raises(Parsed):
                parse_module(words[2], words[3:], monkeypatch)
