"""Episodes without a result: errors, budgets, and resuming."""

import os
import re
import signal
import weakref

import pytest

import vlmgym
from tests.playing import GAME, Model, without_times
from vlmgym.errors import PolicyError, UsageError, WorkerError
from vlmgym.evaluation import Budget, Hooks, evaluate
from vlmgym.policies import StatePolicy
from vlmgym.sandbox.core.reward import RewardConfig


@pytest.fixture(scope="module")
def random_records():
    return evaluate(GAME, "random", 3, max_turns=30, seed=5, workers=0)


class _Dies(StatePolicy):
    name = "dies"

    def respond(self, game, state, rng):
        os.kill(os.getpid(), signal.SIGKILL)
        return ""


def test_infrastructure_error_ends_only_its_episode():
    ended = []
    records = evaluate(GAME, Model({("2048", 1, 4)}), 3, max_turns=8, workers=0, hooks=Hooks(on_episode=ended.append))
    assert [(record.status, len(record.turns)) for record in records] == [
        ("turn limit", 8),
        ("error", 4),
        ("turn limit", 8),
    ]
    assert (records[1].score, records[1].end_reason) == (None, "the server is down")
    assert len(ended) == 3


def test_resume_plays_what_has_no_result():
    first = evaluate(GAME, Model({("2048", 1, 4)}), 3, max_turns=8, workers=0, history=2)
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
    assert most <= 3  # the unfinished one, the current one, and the one before it
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
    assert [record.score for record in more] == [record.score for record in evaluate(GAME, "random", 10, max_turns=4)]


def test_cost_budget_counts_earlier_sessions():
    budget = Budget(price_in=1e6, price_out=2e6, budget_cost=60)
    records = evaluate(GAME, Model(tokens=5), 4, max_turns=3, workers=0, concurrency=1, budget=budget)
    assert [turn.cost for turn in records[0].turns] == [15.0] * 3
    assert sum(len(record.turns) for record in records) == 4
    policy = Model(tokens=5)
    assert evaluate(GAME, policy, 4, max_turns=3, workers=0, resume=records, budget=budget)[0] == records[0]
    assert policy.requested == []


@pytest.mark.parametrize(("policy", "error"), [(Model(), PolicyError), ("random", UsageError)])
def test_budget_needs_counted_tokens(policy, error):
    with pytest.raises(error, match="tokens"):
        evaluate(GAME, policy, 1, max_turns=1, workers=0, budget=Budget(budget_tokens=1))


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
    ("other", "different"),
    [
        ({"max_turns": 9}, "max_turns was 30 and is 9"),
        ({"history": 1}, "prompts.history was 0 and is 1"),
        ({"reward": RewardConfig(illegal=-1.0)}, "reward.illegal was None and is -1.0"),
        ({"size": 96}, "game.config.size was 64 and is 96"),
    ],
)
def test_resume_needs_the_same_configuration(random_records, other, different):
    game = vlmgym.make_game("2048", size=other.pop("size", 64))
    with pytest.raises(UsageError, match=rf"2048-v0, seed 5.*\({re.escape(different)}\)"):
        evaluate(game, "random", 3, **({"max_turns": 30} | other), seed=5, workers=0, resume=random_records)


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


def test_failure_hands_over_all_episodes():
    calls = 0

    def policy(images_batch, prompt_batch):
        nonlocal calls
        calls += 1
        return ["<answer>up</answer>" for _ in prompt_batch] if calls <= 3 else [1]

    kept = []
    with pytest.raises(PolicyError, match="response 0"):
        evaluate(GAME, policy, 5, max_turns=2, workers=0, concurrency=1, hooks=Hooks(on_episode=kept.append))
    assert [(record.seed, record.status, len(record.turns)) for record in kept] == [
        (0, "turn limit", 2),
        (1, "stopped", 1),
    ]
    assert [record.score is None for record in kept] == [False, True]


def test_dead_worker_is_an_error():
    with pytest.raises(WorkerError, match="a worker process died"):
        evaluate(GAME, _Dies(), 2, workers=1)
