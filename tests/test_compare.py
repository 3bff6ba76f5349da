"""Comparisons of two runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.playing import edited, play_run
from vlmgym import UsageError
from vlmgym.cli.main import main
from vlmgym.evaluation import read_run
from vlmgym.evaluation.compare import Comparison
from vlmgym.pages.compare import CompareConfig, compare
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.statistics import paired_difference


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return (
        play_run(folder / "trained", "oracle", ("2048", "swap"), episodes=6, seed=2),
        play_run(folder / "baseline", "random", ("2048", "swap"), episodes=7),
    )


def compared(first: Path, second: Path, out: Path, **options: Any) -> Comparison:
    return compare(CompareConfig(runs=(first, second), output_dir=out, workers=0, **({"page": False} | options)))


@example([(3.0, 1.0), (4.0, 2.0), (5.0, 3.0)])  # the BCa interval is undefined for equal differences
@example([(-2156.68359375, 0.1)] * 2)  # rounding puts the quantiles of equal means out of order
@given(st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)), min_size=1, max_size=12))
def test_interval_is_within_the_range_of_differences(pairs: list[tuple[float, float]]):
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = paired_difference(first, second)
    assert found == paired_difference(first, second)
    differences = [a - b for a, b in pairs]
    assert found.difference == pytest.approx(np.mean(differences), abs=1e-9)
    if len(pairs) == 1:
        assert found.interval is None
    else:
        assert found.interval is not None
        low, high = found.interval
        assert min(differences) - 1e-6 <= low <= high <= max(differences) + 1e-6


def test_equal_seeds_are_paired(runs, tmp_path):
    found = compared(*runs, tmp_path / "out", labels=("trained", "baseline"))
    mine, theirs = ({episode.key: episode for episode in read_run(run).episodes} for run in runs)
    for game in ("2048-v0", "swap-v0"):
        pairs = [(mine[game, seed], theirs[game, seed]) for seed in range(2, 7)]
        one = found.games[game]
        assert one.pairs == 5
        assert one.left_out == {"only in trained": 1, "only in baseline": 2}
        scores = np.array([(a.score, b.score) for a, b in pairs], float)
        metric = one.metrics["score"]
        assert (metric.first, metric.second) == pytest.approx(tuple(scores.mean(axis=0)))
        assert metric.difference == pytest.approx((scores[:, 0] - scores[:, 1]).mean())
        counts = [(scores[:, 0] > scores[:, 1]).sum(), (scores[:, 0] == scores[:, 1]).sum()]
        assert [one.wins.count, one.ties.count, one.losses.count] == [*counts, 5 - sum(counts)]
        illegal = [np.mean([[turn.outcome == "illegal" for turn in one.turns] for one in pair], 1) for pair in pairs]
        assert one.metrics["illegal rate"].difference == pytest.approx(np.mean([a - b for a, b in illegal]))
        assert "perception" not in one.metrics  # the second run has no perception
        assert one.metrics["format"].difference == 1.0
    assert "tiles cleared" in found.games["swap-v0"].metrics
    assert "tiles cleared" not in found.games["2048-v0"].metrics
    assert found.notes == ()
    assert Comparison.model_validate_json((tmp_path / "out" / "compare.json").read_bytes()) == found


def test_episodes_without_a_result_are_not_paired(runs, tmp_path):
    run = shutil.copytree(runs[1], tmp_path / "changed")
    with edited(run / "episodes.jsonl") as records:
        for record in records:
            if record["seed"] == 3 or record["game"]["id"] == "swap-v0":
                record |= {"status": "error", "score": None}
    found = compared(runs[0], run, tmp_path / "out", labels=("a", "b"))
    assert found.games["2048-v0"].pairs == 4
    assert found.games["2048-v0"].left_out == {"only in a": 2, "only in b": 2}
    assert found.notes == ("swap-v0 is left out: no seed has a result in both runs",)


@pytest.mark.parametrize(
    ("games", "options", "fact"),
    [
        (("2048",), {"max_turns": 9}, "max_turns: 10 in oracle, 9 in random-legal"),
        (("2048",), {"overrides": (("rows=5",),)}, "rows: 4 in oracle, 5 in random-legal"),
        (("2048",), {"seed": 100}, "no results with the same game and seed"),
        (("shisensho",), {"size": 400}, "no game in common: 2048-v0, swap-v0 and shisensho-v0"),
    ],
)
def test_runs_that_cannot_be_compared(runs, tmp_path, games, options, fact):
    other = play_run(tmp_path / "other", "random-legal", games, episodes=1, **options)
    with pytest.raises(UsageError, match=fact):
        compared(runs[0], other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_differences_are_noted(runs, tmp_path, capsys):
    other = play_run(tmp_path / "other", "random", reward=RewardConfig(illegal=-1.0), history=1)
    found = compared(other, runs[1], tmp_path / "out")
    assert found.labels == ("other", "baseline")
    assert found.notes == (
        "swap-v0 is left out: only in baseline",
        "reward settings differ (illegal: -1.0 in other, None in baseline), so total rewards are not compared; "
        "vlmgym rescore can apply the same settings",
        "history is 1 in other and each game's default in baseline",
    )
    assert "reward" not in found.games["2048-v0"].metrics
    out = " ".join(capsys.readouterr().out.split())
    for note in found.notes:
        assert note in out


def test_command_line_and_page(runs, tmp_path, capsys):
    args = ["compare", str(runs[0]), str(runs[1]), "--workers", "0", "--output-dir", str(tmp_path / "out")]
    main([*args, "--labels", "<script>alert(1)</script>", "[red]base"])
    out = capsys.readouterr().out
    assert "5 pairs; left out: 1 only in <script>" in out
    assert "[red]base" in out
    page = (tmp_path / "out" / "compare.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt; vs [red]base</title>" in page
    assert "Wilson" in page
    before = (tmp_path / "out" / "compare.html").read_bytes()
    main([*args, "--labels", "<script>alert(1)</script>", "[red]base"])
    assert (tmp_path / "out" / "compare.html").read_bytes() == before
