"""`vlmgym bench-model --prompt` compares a tiny model in transformers with a real HTTP server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api_server import ApiServer
from tests.in_training.tiny import make_checkpoint
from tests.test_bench_model import streamed
from vlmgym.cli.bench_model import BenchModelConfig, bench_model


def test_server_and_transformers_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_checkpoint(tmp_path / "model")
    with ApiServer(lambda _: streamed("one ", "two")).running() as server:
        config = BenchModelConfig(
            base_url=server.url,
            model="tiny",
            prompt="Count to two.",
            runs=3,
            max_tokens=12,
            ignore_eos=True,
            against=str(tmp_path / "model"),
            device="cpu",
        )
        speeds = bench_model(config)
    assert len(server.requests) == 1 + 3, "a warm-up and the runs"
    (local,) = speeds.transformers
    assert local.steady_tokens_per_second is not None
    assert (speeds.server[0].requests, local.requests, local.completion_tokens) == (3, 3, 12)
    whole, after_first = 12 / local.request_tokens_per_second.mean, 11 / local.steady_tokens_per_second.mean
    assert whole == pytest.approx(local.first_token.mean + after_first, rel=0.3)
    assert 0 < local.first_token.mean < whole
    out = capsys.readouterr().out
    assert "ratio" in out
    assert "±" in out
