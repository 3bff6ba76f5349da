"""The Ray backend where no cluster answers; tests/ray_cluster has the tests on a cluster."""

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
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1: "),
        ("nonsense", "no Ray cluster answers at RAY_ADDRESS=nonsense: Invalid address format"),
    ],
)
def test_a_cluster_that_does_not_answer(address: str, words: str) -> None:
    program = (
        "from vlmgym import make_vec\n"
        "from vlmgym.errors import UsageError\n"
        "try:\n    make_vec('2048', 2, backend='ray')\n"
        "except UsageError as error:\n    print(error)"
    )
    assert words in run_training("-c", program, RAY_ADDRESS=address, timeout=120)


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for play in (lambda: make_vec("2048", 2, backend="ray"), lambda: evaluate("2048", "random", backend="ray")):
        with pytest.raises(UsageError, match=r"the backend ray needs Ray: run pip install -e '.\[ray\]'"):
            play()


def test_the_word_of_a_backend() -> None:
    with pytest.raises(UsageError, match="backend is one of process, ray, not 'slurm'"):
        make_vec("2048", 2, backend="slurm")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="backend is one of process, ray, not 'slurm'"):
        evaluate("2048", "random", backend="slurm")  # type: ignore[arg-type]


def test_vlmgym_does_not_import_ray() -> None:
    program = "import sys, vlmgym.rollout.runner, vlmgym.sandbox.envs.vector.env\nassert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
