"""Code in the README and the documentation pages.

Fenced blocks of bash, and indented blocks that begin with a known program, are commands. Python is always fenced; a
block that needs more than the core environment begins with a comment "needs ...".
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
VARIABLE = re.compile(r"\w+=")
ENVIRONMENT = re.compile(r"(?:\.\./)*\.venv[\w-]*/bin/")
NEEDS = "# needs "
STAND_INS = {"GAME": "swap", "NAME": "swap"}
PROGRAMS = {
    *(".ci/run", "bash", "git", "inspect", "mypy", "openenv", "openssl", "pre-commit", "py-spy", "python", "ruff"),
    *("sha256sum", "uv", "vf-eval", "vlmgym"),
}


def name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return [code for found, code in FENCED.findall(page.read_text(encoding="utf-8")) if found == language]


def shell_blocks(page: Path) -> list[str]:
    """Return the command blocks, without indentation."""
    indented = INDENTED.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in indented]
    return [*blocks(page, "bash"), *(block for block in plain if _program(block.split("\n")[0]) in PROGRAMS)]


def commands(page: Path) -> list[list[str]]:
    """Return the words of every command except `cd` and `export`, without variables and the environment's path."""
    found = []
    for block in shell_blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" && ", line):
                words = shlex.split(part, comments=True)
                while words and VARIABLE.match(words[0]):
                    words.pop(0)
                if words and words[0] not in ("cd", "export"):
                    found.append([ENVIRONMENT.sub("", words[0]), *(STAND_INS.get(word, word) for word in words[1:])])
    return found


def _program(line: str) -> str:
    words = [word for word in line.split() if not VARIABLE.match(word)]
    return ENVIRONMENT.sub("", words[0]) if words else "bash"
