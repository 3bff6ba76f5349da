"""How tests are dealt to processes."""

from __future__ import annotations

import pytest


def test_tests_of_a_file_are_run_by_one_process(request: pytest.FixtureRequest) -> None:
    """What takes minutes to set up would be set up by each process, and nothing else would tell."""
    name = request.node.nodeid.rpartition("::")[2]
    grouped = getattr(request.config.option, "loadgroup", False)
    assert name == request.function.__name__ + ("@test_groups" if grouped else "")
