"""Summaries in the table of commands in `vlmgym --help`."""

import inspect
from importlib import import_module

from vlmgym.cli.main import COMMANDS, SUMMARIES


def test_summaries_are_the_docstrings_of_the_options() -> None:
    assert [*COMMANDS] == [*SUMMARIES]
    for name, command in COMMANDS.items():
        module = import_module(command.module)
        assert " ".join(str(inspect.getdoc(getattr(module, command.options))).split()) == SUMMARIES[name]
        assert callable(getattr(module, command.action))
