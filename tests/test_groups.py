"""Distribution of tests over processes."""

from __future__ import annotations

import pytest


def test_tests_of_a_file_are_run_by_one_process(request: pytest.FixtureRequest) -> None:
    """Otherwise each process would repeat fixtures that take minutes, and no other test would notice."""
    name = request.node.nodeid.rpartition("::")[2]
    grouped = getattr(request.config.option, "loadgroup", False)
    assert name == request.function.__name__ + ("@test_groups" if grouped else "")
