"""Summaries of episodes, and their confidence intervals."""

import numpy as np
import pytest

import vlmgym
from tests.playing import summarise
from vlmgym.evaluation import evaluate
from vlmgym.statistics import confidence_interval

GAME = vlmgym.make_game("2048", size=64)


@pytest.fixture(scope="module")
def records():
    return evaluate(GAME, "random", 3, max_turns=30, seed=5, workers=0)


def test_summary_of_known_episodes(records):
    summary = summarise(records)
    scores = [record.score for record in records]
    turns = [turn for record in records for turn in record.turns]
    assert summary.episodes == 3
    assert summary.score_mean == pytest.approx(np.mean(scores))
    assert summary.score_stderr == pytest.approx(np.std(scores, ddof=1) / 3**0.5)
    assert summary.score_max == max(scores)
    assert summary.illegal_rate == sum(turn.outcome == "illegal" for turn in turns) / len(turns)
    assert summary.unparsable_rate == 0
    tiles = [int(tile) for tile in summary.metric_counts["largest tile"]]
    assert tiles == sorted(tiles)
    assert sum(summary.metric_counts["largest tile"].values()) == 3
    assert (summary.prompt_tokens, summary.cost, summary.latency_p50) == (None, None, None)


def test_episodes_without_a_result_count_for_tokens_only(records):
    measured = {"prompt_tokens": 10, "completion_tokens": 2}
    turns = [turn.model_copy(update=measured | {"latency": i}) for i, turn in enumerate(records[0].turns)]
    failed = records[0].model_copy(update={"score": None, "status": "error", "turns": tuple(turns)})
    summary, without = summarise([failed, *records[1:]]), summarise(records[1:])
    costs = {"unfinished", "prompt_tokens", "completion_tokens", "latency_p50", "latency_p95"}
    assert summary.model_dump(exclude=costs) == without.model_dump(exclude=costs)
    assert summary.unfinished == {"error": 1}
    assert (summary.prompt_tokens, summary.completion_tokens) == (300, 60)
    assert (summary.latency_p50, summary.latency_p95) == (14, 28)
    alone = summarise([failed])
    assert (alone.episodes, alone.score_mean, alone.score_ci, alone.score_max) == (0, None, None, None)


def test_planned_episodes_that_were_not_started(records):
    assert summarise(records, 5).unfinished == {"not started": 2}
    nothing = summarise([], 5)
    assert (nothing.unfinished, nothing.illegal_rate, nothing.format_compliance) == ({"not started": 5}, None, None)


@pytest.mark.parametrize(
    ("values", "unit_interval", "interval"),
    [
        ([1.0, 2.0, 3.0, 4.0], True, (0.4457, 4.5543)),  # Student's t, 3 degrees of freedom: 2.5 +- 3.1824 x 0.6455
        ([1.0] * 10, True, (0.7225, 1.0)),  # Wilson: 1 / (1 + 1.96^2 / 10)
        ([1.0, 1.0, 1.0, 1.0, 0.0], True, (0.3755, 0.9638)),
    ],
)
def test_interval(values, unit_interval, interval):
    assert confidence_interval(values, unit_interval=unit_interval) == pytest.approx(interval, abs=1e-4)


@pytest.mark.parametrize(("value", "unit_interval"), [(18.0, True), (0.0, False)])
def test_equal_values_have_no_interval(value, unit_interval):
    assert confidence_interval([value] * 10, unit_interval=unit_interval) is None


def test_only_single_turn_scores_get_wilson_intervals():
    boards = evaluate(GAME, "oracle", episodes=3, max_turns=1, workers=0)
    assert {episode.score for episode in boards} == {0.0}  # no tiles merge in the first turn of these episodes
    assert summarise(boards).score_ci is None
    questions = evaluate(vlmgym.make_game("nlvr2", size=128), "oracle", episodes=3, workers=0)
    assert summarise(questions).score_ci == pytest.approx((0.4385, 1.0), abs=1e-4)
