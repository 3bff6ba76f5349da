"""`vlmgym new-game NAME`: write a package with an example game and its tests, to be turned into your own game."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Annotated

import tyro

from vlmgym.errors import UsageError, short_repr
from vlmgym.runs.files import new_folder
from vlmgym.sandbox.registry import load_games
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class NewGameConfig:
    """Options of `vlmgym new-game`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Name of the game in commands: lower-case letters and digits, with a letter first."""


def new_game(config: NewGameConfig) -> Path:
    """Write the package NAME, whose game passes `vlmgym.testing.check_game`, and return its folder.

    Raises:
        UsageError: The name is not valid or taken by a game, or the folder exists.
    """
    name = config.name
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or iskeyword(name):
        raise UsageError(
            "a name has lower-case letters and digits, with a letter first, and is no keyword of Python, "
            f"got {short_repr(name)}"
        )
    if name in {game.name for game in load_games()[0].values()} or name in ("vlmgym", "test"):
        raise UsageError(f"{name} is taken: choose another name")
    folder, words = Path(name), {"name": name, "type": name.capitalize()}
    with new_folder(folder) as part:
        for template in (files("vlmgym.cli") / "templates").iterdir():
            path = part / template.name.removesuffix(".txt").replace("game.py", f"{name}.py")
            path.write_text(Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    console = make_console()
    console.print(f"wrote {folder}: complete {name}.py as AGENTS.md says, then", soft_wrap=True)
    python = shlex.quote(sys.executable)
    console.print(f"    cd {folder} && {python} -m pip install -e . pytest && {python} -m pytest", soft_wrap=True)
    return folder
