"""The Ray backend without a cluster; tests/ray_cluster tests it on a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.training import ROOT, run_training
from vlmgym import make_vec
from vlmgym.errors import UsageError
from vlmgym.rollout.runner import evaluate


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
        "from vlmgym import make_vec\n"
        "from vlmgym.errors import UsageError\n"
        "try:\n    make_vec('2048', 2, backend='ray')\n"
        "except UsageError as error:\n    print(error)"
    )
    assert message in run_training("-c", program, RAY_ADDRESS=address, timeout=120)


def test_missing_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for play in (lambda: make_vec("2048", 2, backend="ray"), lambda: evaluate("2048", "random", backend="ray")):
        with pytest.raises(UsageError, match=r"the ray backend needs Ray: run pip install 'vlmgym\[ray\]'"):
            play()


def test_invalid_backend() -> None:
    with pytest.raises(UsageError, match="backend must be one of process, ray, got 'slurm'"):
        make_vec("2048", 2, backend="slurm")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="backend must be one of process, ray, got 'slurm'"):
        evaluate("2048", "random", backend="slurm")  # type: ignore[arg-type]


def test_ray_is_imported_lazily() -> None:
    program = "import sys, vlmgym.rollout.runner, vlmgym.sandbox.envs.vector.make\nassert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
