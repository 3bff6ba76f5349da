"""The layers of the package, as [tool.importlinter] in pyproject.toml describes them."""

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
