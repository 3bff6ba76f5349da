"""Several episodes per seed: best and worst of k, the parts of the variance, and efficiency."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api_server import ApiServer
from vlmgym.cli.main import main
from vlmgym.evaluation.repeats import _interval, best_of, group_repeats, variances
from vlmgym.evaluation.saved_runs import read_runs
from vlmgym.statistics import confidence_interval, wilson

SCORES = st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1, max_size=5)


@given(SCORES, st.integers(1, 4))
def test_best_of_k_is_the_mean_over_all_subsets(scores: list[list[float]], k: int) -> None:
    subsets = [np.mean([max(subset) for subset in combinations(row, k)]) for row in scores]
    assert best_of(np.array(scores), k).mean() == pytest.approx(np.mean(subsets), abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pass_at_k_is_unbiased_for_stochastic_players(k: int) -> None:
    """A player that solves seed i with probability p_i has pass@k = mean of 1 - (1 - p_i)^k."""
    rng, chances = np.random.default_rng(0), np.array([0.05, 0.3, 0.5, 0.9])
    solved = rng.random((5_000, 4, 5)) < chances[:, None]
    estimates: list[Any] = [
        (best_of(run, k).mean(), -best_of(-run, k).mean(), *variances(run)) for run in solved.astype(float)
    ]
    best, worst, between, within = np.mean(estimates, axis=0)
    assert best == pytest.approx(np.mean(1 - (1 - chances) ** k), abs=0.01)
    assert worst == pytest.approx(np.mean(chances**k), abs=0.01)
    assert within == pytest.approx(np.mean(chances * (1 - chances)), abs=0.01)
    assert between == pytest.approx(chances.var(ddof=1), abs=0.02)  # slightly above, because it is at least 0


@pytest.mark.parametrize(("seeds", "chances"), [(5, (2.0, 2.0)), (20, (0.6, 1.4)), (100, (0.3, 2.0))])
def test_intervals_cover_the_expected_score(seeds: int, chances: tuple[float, float]) -> None:
    """A player whose chance to solve a seed is Beta(a, b) has pass@k = 1 - prod (b + i) / (a + b + i) for i < k."""
    rng, (a, b), samples, runs = np.random.default_rng(0), chances, 8, 300
    for k in (1, 2, 3, samples):
        expected, covered = 1 - math.prod((b + i) / (a + b + i) for i in range(k)), 0
        for _ in range(runs):
            solved = (rng.random((seeds, samples)) < rng.beta(a, b, (seeds, 1))).astype(float)
            low, high = _interval(best_of(solved, k), samples / k, shares=True) or (0, 0)
            assert 0 <= low < high <= 1
            covered += low <= expected <= high
        assert covered >= 0.92 * runs


def test_intervals_of_other_scores_are_students() -> None:
    means = [1.0, 2.0, 4.0]
    assert _interval(np.array(means), 4, shares=False) == confidence_interval(means, unit_interval=False)


def sometimes(images_batch: Any, prompt_batch: Any) -> list[str]:
    """Play the oracle's move with probability 0.7, else a move that wastes the turn."""
    from tests.test_repeats import RNG  # this file is loaded again for each sample

    answers = []
    for prompt in prompt_batch:
        best = prompt.game.best_action(prompt.game.from_json(prompt.snapshot.state))
        answers.append(prompt.game.answer.format(best) if RNG.random() < 0.7 else "9, 9")
    return [f"<answer>{answer}</answer>" for answer in answers]


RNG = np.random.default_rng(1)
POLICY = f"{__file__}:sometimes"
EVAL = ["eval", "lightsout", "--videos", "0", "--no-report", "--size", "96", "--workers", "0"]


def test_samples_are_runs_with_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "repeats"
    options = ["--policy", POLICY, "--samples", "3", "--episodes", "6", "--max-turns", "8"]
    main([*EVAL, *options, "--output-dir", str(folder)])
    assert "Best and worst of k" in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "3"]
    main(["repeats", str(folder), "--format", "json", "--success", "1"])
    (result,) = json.loads(capsys.readouterr().out)
    runs = read_runs(folder)
    scores = np.array([[episode.score for episode in run.stored.episodes] for run in runs], float).T
    solved = (scores >= 1).astype(float)
    assert (result["seeds"], result["samples"]) == (6, 3)
    assert result["within_seeds"] > 0
    assert result["mean"] == pytest.approx(solved.mean())
    assert result["best_of"]["3"] == pytest.approx(solved.max(axis=1).mean())
    assert result["worst_of"]["3"] == pytest.approx(solved.min(axis=1).mean())
    assert result["interval"] == result["best_intervals"]["1"] == result["worst_intervals"]["1"]
    assert result["best_intervals"]["3"] == pytest.approx(wilson(solved.max(axis=1).sum(), 6))
    assert result["worst_intervals"]["3"] == pytest.approx(wilson(solved.min(axis=1).sum(), 6))
    assert 0 <= result["interval"][0] < solved.mean() <= result["interval"][1] <= 1
    (every,) = group_repeats(runs, success=-1)  # all episodes succeed
    low, high = every.interval or (0, 0)
    assert every.mean == high == 1 > low > 0
    ratios = []
    for run in runs:
        for stored in run.stored.episodes:
            record = stored.read()
            if record.score == 1:  # wasted turns count
                ratios.append(sum(turn.outcome.value == "played" for turn in record.turns) / len(record.turns))
    assert result["efficiency"] == pytest.approx(np.mean(ratios))


def test_samples_of_the_oracle_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "repeats"
    main([*EVAL, "--policy", "oracle", "--samples", "2", "--episodes", "3", "--output-dir", str(folder)])
    (result,) = group_repeats(read_runs(folder))
    assert (result.mean, result.efficiency, result.within_seeds) == (1.0, 1.0, 0.0)
    assert result.best_of == result.worst_of == {1: 1.0, 2: 1.0}
    with pytest.raises(SystemExit, match="2"):
        main(["diagnose", str(folder)])
    assert f"{folder} is not a run but contains runs: choose one, such as {folder / '1'}" in capsys.readouterr().err


def test_samples_can_be_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "repeats"
    options = ["--policy", POLICY, "--max-turns", "3", "--samples", "2"]
    main([*EVAL, *options, "--episodes", "2", "--output-dir", str(folder)])
    before = [(folder / name / "episodes.jsonl").read_text() for name in ("1", "2")]
    main([*EVAL, "--policy", POLICY, "--max-turns", "3", "--samples", "3", "--episodes", "3", "--resume", str(folder)])
    for name, text in zip(("1", "2"), before, strict=True):
        assert (folder / name / "episodes.jsonl").read_text().startswith(text)
    (result,) = group_repeats(read_runs(folder))
    assert (result.seeds, result.samples) == (3, 3)


def test_samples_do_not_resume_a_single_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*EVAL, "--policy", POLICY, "--max-turns", "3", "--episodes", "1"]
    main([*options, "--output-dir", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match="2"):
        main([*options, "--samples", "2", "--resume", str(tmp_path / "run")])
    assert "is a single run: resume it without --samples" in capsys.readouterr().err


def test_a_budget_covers_all_samples_and_their_seeds_differ(tmp_path: Path, quick_retries: None) -> None:
    folder, tokens = tmp_path / "repeats", 107
    with ApiServer().running() as server:
        options = ["--base-url", server.url, "--model", "tiny", "--sample-seed", "5", "--samples", "4"]
        limits = ["--concurrency", "1", "--episodes", "2", "--max-turns", "2", "--budget-tokens", str(6 * tokens)]
        main([*EVAL, *options, *limits, "--output-dir", str(folder)])
    assert len(server.requests) == 6  # 4 per sample
    assert [run.config.policy.options["sample_seed"] for run in read_runs(folder)] == [5, 6]
    assert len({request.body["seed"] for request in server.requests}) == 6
