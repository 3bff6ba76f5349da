"""The table of commands."""

import inspect
from importlib import import_module

from vlmgym.cli.main import COMMANDS


def test_summaries_are_the_docstrings_of_the_options() -> None:
    for command in COMMANDS.values():
        module = import_module(command.module)
        assert " ".join(str(inspect.getdoc(getattr(module, command.options))).split()) == command.summary
        assert callable(getattr(module, command.action))
