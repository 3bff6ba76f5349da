"""Training commands in the documentation have valid options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_pages import PAGES, commands, name
from tests.test_doc_code import Parsed, parse_module
from training.local.options import read_config

LOCAL = ["python", "-m", "training.local.train"]
MODULES = ("benchmarks.critic", "benchmarks.train_speed")


@pytest.mark.parametrize("page", [page for page in PAGES if "-train/bin/" in page.read_text()], ids=name)
def test_training_commands_are_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        if words[:3] == LOCAL and "$EPISODES" not in words:
            read_config(words[3:])
        elif words[:2] == ["bash", "training/scripts/local_2048.sh"]:
            read_config(words[2:])
        elif words[:2] == LOCAL[:2] and words[2] in MODULES:
            with pytest.raises(Parsed):
                parse_module(words[2], words[3:], monkeypatch)
