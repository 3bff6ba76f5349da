"""The Ray backend without a cluster; tests/ray_cluster tests it on a cluster."""

from __future__ import annotations

import sys

import pytest

from tests.training import EASYR1, run_training
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster responds at RAY_ADDRESS=127.0.0.1:1: "),
        ("nonsense", "no Ray cluster responds at RAY_ADDRESS=nonsense: Invalid address format"),
    ],
)
def test_missing_cluster(address: str, message: str) -> None:
    program = (
        "from vlmgym.evaluation import evaluate\n"
        "from vlmgym.errors import UsageError\n"
        "try:\n    evaluate('2048', 'random', backend='ray')\n"
        "except UsageError as error:\n    print(error)"
    )
    assert message in run_training("-c", program, environment=EASYR1, RAY_ADDRESS=address, timeout=120)


def test_missing_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"the ray backend needs Ray: run .+ -m pip install 'vlmgym\[ray\]'"):
        evaluate("2048", "random", backend="ray")
