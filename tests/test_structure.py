"""The layers of the package, as [tool.importlinter] in pyproject.toml describes them, and its regular expressions."""

import re
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
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            ignores_case = re.search(r"\b(re\.I|IGNORECASE)\b", line) is not None
            assert not ignores_case or re.search(r"\b(re\.A|ASCII)\b", line), f"{path}, line {number}"
            assert "(?i" not in line, f"{path}, line {number}"
