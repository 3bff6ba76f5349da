"""Episodes played by `evaluate`, their records and summaries; errors, budgets and resuming."""

import asyncio
import json
import os
import signal

import numpy as np
import pytest

import vlmgym
from tests.playing import GAME, Model, summarise, without_times
from vlmgym.errors import PolicyError, UsageError, WorkerError
from vlmgym.evaluation import Budget, EpisodeRecord, GameRunRecord, Hooks, evaluate
from vlmgym.policies import StatePolicy, random_response
from vlmgym.rollout.turn import TURN_LIMIT
from vlmgym.runs.record import game_run_document
from vlmgym.sandbox.core.prompt import LONGEST_PAST_RESPONSE
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval


def answers(word):
    def policy(images_batch, prompt_batch):
        return [f"<answer>{word}</answer>" for _ in prompt_batch]

    return policy


def at_random(images_batch, prompt_batch):
    return [random_response(prompt) for prompt in prompt_batch]


@pytest.fixture(scope="module")
def records():
    return evaluate(GAME, "random", 3, max_turns=30, seed=5, workers=0)


@pytest.mark.parametrize(
    ("policy", "options"), [("random", {"workers": 1}), (at_random, {"workers": 2, "concurrency": 2})]
)
def test_records_do_not_depend_on_workers(records, policy, options):
    again = evaluate(GAME, policy, 3, max_turns=30, seed=5, **options)
    assert [without_times(record) for record in again] == [without_times(record) for record in records]


def test_records_survive_json(records):
    run = GameRunRecord(summary=summarise(records), episodes=tuple(records))
    lines = [record.model_dump_json().encode() for record in records]
    document = b"".join(game_run_document(run.summary, lines))
    assert GameRunRecord.model_validate_json(document) == run
    assert document.splitlines()[-4:] == [*(line + b"," for line in lines[:-1]), lines[-1], b"]}"]


def test_unknown_fields_are_ignored_but_old_records_rejected(records):
    record = records[0]
    data = record.model_dump(mode="json")
    assert EpisodeRecord.model_validate(data | {"added later": 1}) == record
    with pytest.raises(ValueError, match="record"):
        EpisodeRecord.model_validate(data | {"record": 1})
    assert vlmgym.make_game(record.game.id, **record.game.config) == GAME
    assert set(record.versions) == {"python", "vlmgym", "numpy", "gymnasium", "gymnasium-2048", "pygame"}


def test_illegal_and_unparsable_turns_count():
    record = evaluate(GAME, answers("up"), 1, max_turns=40, workers=0)[0]
    outcomes = [turn.outcome for turn in record.turns]
    assert len(outcomes) == 40
    assert record.end_reason == TURN_LIMIT
    assert not record.terminated
    first = outcomes.index(Outcome.ILLEGAL)
    assert record.turns[first + 1].state == record.turns[first].state
    assert "Your last response was not played: sliding up changes nothing." in record.turns[first + 1].prompt
    assert "not played" not in record.turns[first].prompt

    record = evaluate(GAME, answers("sideways"), 1, max_turns=5, workers=0)[0]
    assert [turn.outcome for turn in record.turns] == [Outcome.UNPARSABLE] * 5
    assert record.turns[0].action is None
    assert record.score == 0


def test_game_ends_the_episode():
    record = evaluate(GAME, "random-legal", 1, max_turns=5000, workers=0)[0]
    assert record.terminated
    assert record.end_reason == "no move is left"
    assert len(record.turns) < 5000
    assert GAME.ended(GAME.from_json(json.dumps(record.final_state))) == record.end_reason


def test_evaluate_works_inside_an_event_loop():
    async def notebook():
        return evaluate(GAME, "random", 1, max_turns=3, workers=0)

    assert len(asyncio.run(notebook())) == 1


def test_several_games_have_the_same_seeds():
    games = [GAME, vlmgym.make_game("swap", size=256)]
    together = evaluate(games, "random", 2, max_turns=5, seed=3, workers=0)
    assert [record.key for record in together] == [(game.id, seed) for game in games for seed in (3, 4)]
    alone = [record for game in games for record in evaluate(game, "random", 2, max_turns=5, seed=3, workers=0)]
    assert [without_times(record) for record in together] == [without_times(record) for record in alone]
    with pytest.raises(UsageError, match="a game is listed twice"):
        evaluate([GAME, GAME], "random", 2)


def test_long_responses_are_shortened_in_prompts():
    record = evaluate(GAME, answers("up" + " " * 5000 + "up"), 1, max_turns=2, workers=0, history=1)[0]
    assert len(record.turns[0].response) > 5000
    assert len(record.turns[1].prompt) - len(record.turns[0].prompt) < LONGEST_PAST_RESPONSE + 300
    assert "  up</answer>" in record.turns[1].prompt


def test_history_images_come_first():
    seen = []

    def policy(images_batch, prompt_batch):
        seen.append(images_batch[0])
        return [random_response(prompt) for prompt in prompt_batch]

    record = evaluate(GAME, policy, 1, max_turns=6, workers=1, history=3, history_images=2)[0]
    drawn = [GAME.draw(GAME.from_data(turn.state)) for turn in record.turns]
    assert [len(images) for images in seen] == [1, 2, 3, 3, 3, 3]
    assert all(np.array_equal(a, b) for a, b in zip(seen[4], drawn[2:5], strict=True))
    prompt = record.turns[4].prompt
    assert "The last image shows the current state" in prompt
    assert "Turn 1 (" not in prompt
    assert record.turns[3].response in prompt
    assert "Turn 2 (played" in prompt or "Turn 2 (illegal" in prompt
    assert "Turn 3 (image 1, " in prompt
    assert "Turn 4 (image 2, " in prompt
    assert "image" not in record.turns[0].prompt.partition("Respond in exactly this form")[2]


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


@pytest.mark.parametrize(
    ("values", "unit_interval", "interval"),
    [
        ([1.0, 2.0, 3.0, 4.0], True, (0.4457, 4.5543)),  # Student's t, 3 degrees of freedom: 2.5 +- 3.1824 x 0.6455
        ([1.0] * 10, True, (0.7225, 1.0)),  # Wilson: 1 / (1 + 1.96^2 / 10)
        ([1.0, 1.0, 1.0, 1.0, 0.0], True, (0.3755, 0.9638)),
        ([18.0] * 10, True, None),
        ([0.0] * 10, False, None),
    ],
)
def test_interval(values, unit_interval, interval):
    assert confidence_interval(values, unit_interval=unit_interval) == pytest.approx(interval, abs=1e-4)


def test_only_single_turn_scores_get_wilson_intervals():
    boards = evaluate(GAME, "oracle", episodes=3, max_turns=1, workers=0)
    assert {episode.score for episode in boards} == {0.0}  # no tiles merge in the first turn of these episodes
    assert summarise(boards).score_ci is None
    questions = evaluate(vlmgym.make_game("scenes-statements", size=128), "oracle", episodes=3, workers=0)
    assert summarise(questions).score_ci == pytest.approx((0.4385, 1.0), abs=1e-4)


class _Dies(StatePolicy):
    name = "dies"

    def respond(self, game, state, rng):
        os.kill(os.getpid(), signal.SIGKILL)
        return ""


def test_resume_plays_episodes_without_a_result():
    first = evaluate(GAME, Model({("2048", 1, 4)}), 3, max_turns=8, workers=0, history=2)
    found = [(record.status, record.end_reason, len(record.turns)) for record in first]
    assert found == [(TURN_LIMIT, TURN_LIMIT, 8), ("error", "the server is down", 4), (TURN_LIMIT, TURN_LIMIT, 8)]
    policy, new = Model(), []
    hooks = Hooks(on_turns=new.extend)
    again = evaluate(GAME, policy, 4, max_turns=8, workers=0, history=2, resume=first, hooks=hooks)
    assert len(new) == 12
    assert sorted(set(policy.requested)) == [("2048", 1, turn) for turn in range(4, 8)] + [
        ("2048", 3, turn) for turn in range(8)
    ]
    assert [record.attempt for record in again] == [1, 2, 1, 1]
    whole = evaluate(GAME, Model(), 4, max_turns=8, workers=0, history=2)
    assert [without_times(r) | {"attempt": 1} for r in again] == [without_times(r) for r in whole]


def test_resume_restarts_episodes_with_other_prompts():
    first = evaluate(GAME, Model({("2048", 0, 4)}), 1, max_turns=6, workers=0)
    turns = first[0].turns
    changed = turns[2].model_copy(update={"prompt": "as an older version had it"})
    policy = Model()
    again = evaluate(
        GAME,
        policy,
        1,
        max_turns=6,
        workers=0,
        resume=[first[0].model_copy(update={"turns": (*turns[:2], changed, turns[3])})],
    )
    assert policy.requested == [("2048", 0, turn) for turn in range(6)]
    assert again[0].status == "turn limit"


def test_run_stops_after_many_errors_in_a_row():
    reasons = []
    fails = {("2048", seed, 0) for seed in range(100)}
    policy = Model(fails)
    records = evaluate(GAME, policy, 50, max_turns=3, workers=0, concurrency=4, hooks=Hooks(on_stop=reasons.append))
    assert 10 <= len(policy.requested) <= 13
    assert {record.status for record in records if record.end_reason != reasons[0]} == {"error"}
    assert reasons == ["10 episodes in a row ended as errors, the last with: the server is down"]


def test_token_budget_stops_the_run():
    reasons = []
    records = evaluate(
        GAME,
        Model(tokens=5),
        10,
        max_turns=4,
        workers=0,
        concurrency=2,
        budget=Budget(budget_tokens=100),
        hooks=Hooks(on_stop=reasons.append),
    )
    used = sum(turn.prompt_tokens + turn.completion_tokens for record in records for turn in record.turns)
    assert 100 <= used <= 110  # requests in flight when the budget ran out are answered
    assert {record.status for record in records} == {"turn limit", "stopped"}
    assert reasons == ["the budget of 100 tokens is used up"]
    more = evaluate(
        GAME, Model(tokens=5), 10, max_turns=4, workers=0, resume=records, budget=Budget(budget_tokens=1000)
    )
    assert [record.score for record in more] == [
        record.score for record in evaluate(GAME, "random", 10, max_turns=4, workers=0)
    ]


def test_cost_budget_counts_earlier_sessions():
    budget = Budget(price_in=1e6, price_out=2e6, budget_cost=60)
    records = evaluate(GAME, Model(tokens=5), 4, max_turns=3, workers=0, concurrency=1, budget=budget)
    assert [turn.cost for turn in records[0].turns] == [15.0] * 3
    assert sum(len(record.turns) for record in records) == 4
    policy = Model(tokens=5)
    assert evaluate(GAME, policy, 4, max_turns=3, workers=0, resume=records, budget=budget)[0] == records[0]
    assert policy.requested == []


def test_episodes_are_kept_if_the_policy_does_not_close():
    class Fails(Model):
        async def respond(self, images, prompt):
            if prompt.turn == 2:
                raise PolicyError("it broke")
            return await super().respond(images, prompt)

        async def close(self):
            raise RuntimeError("it does not close")

    kept = []
    with pytest.raises((PolicyError, RuntimeError)):
        evaluate(GAME, Fails(), 1, max_turns=5, workers=0, hooks=Hooks(on_episode=kept.append))
    assert [(record.status, len(record.turns)) for record in kept] == [("stopped", 2)]


def test_dead_worker_is_an_error():
    with pytest.raises(WorkerError, match="a worker process died"):
        evaluate(GAME, _Dies(), 2, workers=1)
