"""`vlmgym bench`: it measures rates and recommends a layout."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vlmgym.cli import bench as bench_module
from vlmgym.cli.bench import TIE_RATIO, BenchConfig, Rates, bench, recommend


@given(st.dictionaries(st.tuples(st.integers(0, 8), st.integers(1, 512)), st.floats(1, 1e6), min_size=1))
def test_recommended_layout_is_the_smallest_fast_one(rates):
    chosen = recommend({layout: Rates((rate,)) for layout, rate in rates.items()})
    enough = max(rates.values()) * TIE_RATIO
    assert rates[chosen] >= enough
    assert all(rate < enough for layout, rate in rates.items() if layout < chosen)


def test_bench_measures_every_layout_and_recommends_one(monkeypatch):
    monkeypatch.setattr(bench_module, "ACTIONS", 40)
    config = BenchConfig(game="shisensho", size=120, workers=(1, 0), envs=(4, 2), seconds=0.1)
    assert config.layouts() == [(0, 2), (0, 4), (1, 2), (1, 4)]
    shown = io.StringIO()
    workers, envs = bench(config, Console(file=shown, width=160))
    assert (workers, envs) in config.layouts()
    assert f"make_vec('shisensho', num_envs={envs}, num_workers={workers}" in shown.getvalue()
