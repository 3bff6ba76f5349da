"""Episodes without a result: errors, exhausted budgets, and resuming."""

import os
import signal
import weakref

import pytest

from tests.playing import GAME, Model, without_times
from vlmgym.errors import PolicyError, UsageError, WorkerError
from vlmgym.evaluation import Budget, Hooks, evaluate
from vlmgym.policies import StatePolicy
from vlmgym.rollout.turn import TURN_LIMIT


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


def test_records_are_not_kept_without_collect():
    first = evaluate(GAME, Model({("2048", 1, 4)}), 3, max_turns=8, workers=0)
    alive = most = 0

    def forget():
        nonlocal alive
        alive -= 1

    def count(record):
        nonlocal alive, most
        alive += 1
        weakref.finalize(record, forget)
        most = max(most, alive)

    def earlier():
        for record in first:
            copy = record.model_copy()
            count(copy)
            yield copy

    options = {"max_turns": 8, "workers": 0, "concurrency": 1, "resume": earlier(), "hooks": Hooks(on_episode=count)}
    assert evaluate(GAME, Model(), 12, **options, collect=False) == []
    assert most <= 3  # records alive: the unfinished one, the current one, and the one before it
    kept = evaluate(GAME, Model(), 12, **(options | {"resume": earlier()}))
    assert len(kept) == 12
    assert most > 10


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget_tokens": -1}, "budget_tokens .* got -1"),
        ({"price_in": 1.0}, "price_in and price_out"),
        ({"budget_cost": 1.0}, "budget_cost requires price_in"),
        ({"price_in": float("nan"), "price_out": 1.0}, "price_in .* got nan"),
    ],
)
def test_invalid_budgets(options, message):
    with pytest.raises(UsageError, match=message):
        Budget(**options)


def test_dead_worker_is_an_error():
    with pytest.raises(WorkerError, match="a worker process died"):
        evaluate(GAME, _Dies(), 2, workers=1)
