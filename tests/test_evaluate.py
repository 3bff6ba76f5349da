import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest

import vlmgym
from tests.processes import gone
from vlmgym.errors import InfrastructureError, PolicyError, UsageError, WorkerError
from vlmgym.evaluation import Budget, EpisodeRecord, GameRunRecord, Hooks, evaluate
from vlmgym.evaluation.statistics import confidence_interval, mean_and_stderr
from vlmgym.evaluation.summary import summarise
from vlmgym.policies import ModelPolicy, Reply, StatePolicy, random_response
from vlmgym.policies.sampling import SamplingOptions
from vlmgym.records.run import game_run_document
from vlmgym.rollout.turn import TURN_LIMIT
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome, RewardConfig
from vlmgym.workers.pool import ProcessPool

GAME = vlmgym.make_game("2048", size=64)


def answers(word):
    def policy(images_batch, prompt_batch):
        return [f"<answer>{word}</answer>" for _ in prompt_batch]

    return policy


def at_random(images_batch, prompt_batch):
    return [random_response(prompt) for prompt in prompt_batch]


def without_times(record):
    """A record as data, without what differs between runs: times, and the name of the policy."""
    data = record.model_dump(mode="json")
    data.pop("policy")
    data.pop("started")
    for turn in data["turns"]:
        turn.pop("latency")
    return data


@pytest.fixture(scope="module")
def random_records():
    return evaluate(GAME, "random", 3, max_turns=30, seed=5, workers=0)


@pytest.mark.parametrize("workers", [1, 2])
def test_records_do_not_depend_on_the_number_of_workers(random_records, workers):
    again = evaluate(GAME, "random", 3, max_turns=30, seed=5, workers=workers)
    assert [without_times(record) for record in again] == [without_times(record) for record in random_records]


def test_a_custom_policy_plays_the_same_as_the_policy_it_copies(random_records):
    again = evaluate(GAME, at_random, 3, max_turns=30, seed=5, workers=2, concurrency=2)
    assert [without_times(record) for record in again] == [without_times(record) for record in random_records]


def test_the_record_is_the_episode(random_records):
    for record in random_records:
        episode = Episode(GAME, record.seed)
        for turn in record.turns:
            assert json.loads(GAME.to_json(episode.state)) == turn.state
            scored = episode.respond(turn.response)
            assert (scored.outcome, scored.game, scored.feedback) == (turn.outcome, turn.reward.game, turn.feedback)
        assert json.loads(GAME.to_json(episode.state)) == record.final_state
        assert episode.score == record.score


def test_a_record_survives_its_json(random_records):
    for record in random_records:
        assert EpisodeRecord.model_validate_json(record.model_dump_json()) == record


def test_a_run_survives_its_document(random_records):
    run = GameRunRecord(summary=summarise(random_records), episodes=tuple(random_records))
    lines = [record.model_dump_json().encode() for record in random_records]
    document = b"".join(game_run_document(run.summary, lines))
    assert GameRunRecord.model_validate_json(document) == run
    assert document.splitlines()[-4:] == [*(line + b"," for line in lines[:-1]), lines[-1], b"]}"]


def test_a_reader_ignores_what_it_does_not_know(random_records):
    data = random_records[0].model_dump(mode="json") | {"added later": 1}
    assert EpisodeRecord.model_validate(data) == random_records[0]


def test_a_record_of_another_version_is_refused(random_records):
    data = random_records[0].model_dump(mode="json") | {"record": 1}
    with pytest.raises(ValueError, match="record"):
        EpisodeRecord.model_validate(data)


def test_a_record_says_everything_needed_to_play_it_again(random_records):
    record = random_records[0]
    assert record.game.id == "2048-v0"
    assert vlmgym.make_game(record.game.id, **record.game.config) == GAME
    assert set(record.versions) == {"python", "vlmgym", "numpy", "gymnasium", "gymnasium-2048", "pygame"}


def test_illegal_and_unparsable_turns_are_used_up():
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


def test_an_ended_episode_stays_ended():
    record = evaluate(GAME, "random-legal", 1, max_turns=5000, workers=0)[0]
    assert record.terminated
    assert record.end_reason == "no move is left"
    assert len(record.turns) < 5000
    assert GAME.ended(GAME.from_json(json.dumps(record.final_state))) == record.end_reason


def test_history_repeats_the_last_turns():
    record = evaluate(GAME, answers("up"), 1, max_turns=6, workers=0, history=2)[0]
    assert "earlier turns" not in record.turns[0].prompt
    prompt = record.turns[5].prompt
    assert "Turn 5 (" in prompt
    assert "Turn 4 (" in prompt
    assert "Turn 3 (" not in prompt
    assert "<answer>up</answer>" in prompt


def test_penalties_shape_the_reward_but_not_the_score():
    reward = RewardConfig(unparsable=-3.0, format_weight=0.5)
    record = evaluate(GAME, lambda images, prompts: ["" for _ in prompts], 1, max_turns=4, workers=0, reward=reward)[0]
    assert [turn.reward.total for turn in record.turns] == [-3.0] * 4
    assert record.score == 0.0


def test_images_are_those_of_the_position():
    seen = []

    def policy(images_batch, prompt_batch):
        seen.extend(images[0] for images in images_batch)
        return [random_response(prompt) for prompt in prompt_batch]

    record = evaluate(GAME, policy, 1, max_turns=8, workers=1)[0]
    drawn = [GAME.draw(GAME.from_data(turn.state)) for turn in record.turns]
    assert len(seen) == 8
    assert all(np.array_equal(a, b) for a, b in zip(seen, drawn))


def test_no_more_episodes_at_once_than_asked():
    most = 0

    def policy(images_batch, prompt_batch):
        nonlocal most
        most = max(most, len(prompt_batch))
        return [random_response(prompt) for prompt in prompt_batch]

    assert len(evaluate(GAME, policy, 7, max_turns=3, workers=0, concurrency=3)) == 7
    assert most == 3


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"episodes": 0}, "episodes must be an integer of at least 1, got 0"),
        ({"max_turns": 0}, "max_turns must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"history": -1}, "history must be an integer of at least 0"),
        ({"concurrency": 0}, "concurrency must be an integer of at least 1"),
        ({"history_images": 1}, "history_images must be at most history, got 1 and 0"),
        ({"workers": -1}, "workers must be an integer of at least 0, got -1"),
    ],
)
def test_bad_arguments_are_refused(option, message):
    with pytest.raises(UsageError, match=message):
        evaluate(GAME, "random", **option)


def test_episodes_that_ended_before_a_failure_were_handed_over():
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


class _Dies(StatePolicy):
    name = "dies"

    def respond(self, game, state, rng):
        os.kill(os.getpid(), signal.SIGKILL)
        return ""


def test_a_worker_that_dies_is_an_error_not_a_score():
    with pytest.raises(WorkerError, match="a worker process died"):
        evaluate(GAME, _Dies(), 2, workers=1)


def test_evaluate_works_inside_a_running_event_loop():
    async def notebook():
        return evaluate(GAME, "random", 1, max_turns=3, workers=0)

    assert len(asyncio.run(notebook())) == 1


def test_workers_end_with_a_killed_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, os, sys, time
        from vlmgym.workers.pool import ProcessPool

        async def main():
            with ProcessPool(2) as workers:
                await workers.start()
                pids = {await workers.call(os.getpid) for _ in range(20)}
                print(*pids, flush=True)
                await asyncio.sleep(60)

        if __name__ == "__main__":
            asyncio.run(main())
        """)
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
    finally:
        parent.kill()
        parent.communicate()
    assert pids
    assert gone(pids)


def test_workers_share_one_game_object():
    async def ids():
        with ProcessPool(1) as workers:
            return {await workers.call(_identity, game) for game in [GAME, vlmgym.make_game("2048", size=64)] * 2}

    assert len(asyncio.run(ids())) == 1


def _identity(game):
    return id(game)


def test_summary_of_known_episodes(random_records):
    summary = summarise(random_records)
    scores = [record.score for record in random_records]
    turns = [turn for record in random_records for turn in record.turns]
    assert summary.episodes == 3
    assert summary.score_mean == pytest.approx(np.mean(scores))
    assert summary.score_stderr == pytest.approx(np.std(scores, ddof=1) / 3**0.5)
    assert summary.score_max == max(scores)
    assert summary.illegal_rate == sum(turn.outcome == "illegal" for turn in turns) / len(turns)
    assert summary.unparsable_rate == 0
    assert sum(summary.metric_counts["largest tile"].values()) == 3
    tiles = [int(tile) for tile in summary.metric_counts["largest tile"]]
    assert tiles == sorted(tiles)
    assert (summary.prompt_tokens, summary.cost, summary.latency_p50) == (None, None, None)


def test_episodes_without_a_result_count_for_tokens_only(random_records):
    turns = [
        turn.model_copy(update={"prompt_tokens": 10, "completion_tokens": 2, "latency": i})
        for i, turn in enumerate(random_records[0].turns)
    ]
    failed = random_records[0].model_copy(update={"score": None, "status": "error", "turns": tuple(turns)})
    summary = summarise([failed, *random_records[1:]])
    without = summarise(random_records[1:])
    told = {"unfinished", "prompt_tokens", "completion_tokens", "latency_p50", "latency_p95"}
    assert summary.model_dump(exclude=told) == without.model_dump(exclude=told)
    assert summary.unfinished == {"error": 1}
    assert (summary.prompt_tokens, summary.completion_tokens) == (300, 60)
    assert (summary.latency_p50, summary.latency_p95) == (14, 28)


def test_a_summary_of_no_result_has_no_score(random_records):
    summary = summarise([random_records[0].model_copy(update={"score": None, "status": "error"})])
    assert (summary.episodes, summary.score_mean, summary.score_ci, summary.score_max) == (0, None, None, None)


def test_the_error_of_one_value_is_unknown():
    assert mean_and_stderr([3.0]) == (3.0, None)
    assert confidence_interval([3.0], within_one=False) is None


def test_the_interval_is_students():
    low, high = confidence_interval([1.0, 2.0, 3.0, 4.0], within_one=True)
    assert (low, high) == pytest.approx((0.4457, 4.5543), abs=1e-4)  # 2.5 +- 3.1824 x 0.6455, t of 3 degrees


def test_the_interval_of_a_share_is_wilsons_and_never_certain():
    least = 0.7225  # 1 / (1 + 1.96^2 / 10)
    assert confidence_interval([1.0] * 10, within_one=True) == pytest.approx((least, 1.0), abs=1e-4)
    assert confidence_interval([1.0, 1.0, 1.0, 1.0, 0.0], within_one=True) == pytest.approx((0.3755, 0.9638), abs=1e-4)
    assert confidence_interval([18.0] * 10, within_one=True) is None
    assert confidence_interval([0.0] * 10, within_one=False) is None


def test_scores_that_happen_to_be_0_or_1_are_no_share():
    boards = evaluate(GAME, "oracle", episodes=3, max_turns=1, workers=0)
    assert {episode.score for episode in boards} == {0.0}  # no tiles merge in the first turn of these
    assert summarise(boards).score_ci is None
    questions = evaluate(vlmgym.make_game("nlvr2", size=128), "oracle", episodes=3, workers=0)
    assert summarise(questions).score_ci == pytest.approx((0.4385, 1.0), abs=1e-4)


def test_episodes_that_were_never_begun_are_counted(random_records):
    summary = summarise(random_records, 5)
    assert summary.unfinished == {"not started": 2}
    nothing = summarise([], 5)
    assert (nothing.unfinished, nothing.illegal_rate, nothing.format_compliance) == ({"not started": 5}, None, None)


class _Model(ModelPolicy):
    """Plays at random, and fails in the turns that it is told, once each."""

    name = "model"
    transform = None

    counts_tokens = True

    def __init__(self, fails=(), tokens=None):
        super().__init__()
        self.fails, self.tokens, self.asked = set(fails), tokens, []

    async def respond(self, images, prompt):
        place = (prompt.game.name, prompt.seed, prompt.turn)
        self.asked.append(place)
        if place in self.fails:
            self.fails.remove(place)
            raise InfrastructureError("the server is away")
        await asyncio.sleep(0.001)
        return Reply(random_response(prompt), self.tokens, self.tokens)


def test_an_infrastructure_error_ends_its_episode_without_a_score_and_no_other():
    ended = []
    records = evaluate(GAME, _Model({("2048", 1, 4)}), 3, max_turns=8, workers=0, hooks=Hooks(on_episode=ended.append))
    assert [(record.status, len(record.turns)) for record in records] == [
        ("turn limit", 8),
        ("error", 4),
        ("turn limit", 8),
    ]
    assert (records[1].score, records[1].end_reason) == (None, "the server is away")
    assert len(ended) == 3


def test_a_resumed_run_goes_on_with_what_has_no_result():
    first = evaluate(GAME, _Model({("2048", 1, 4)}), 3, max_turns=8, workers=0, history=2)
    policy = _Model()
    again = evaluate(GAME, policy, 4, max_turns=8, workers=0, history=2, resume=first)
    assert sorted(set(policy.asked)) == [("2048", 1, turn) for turn in range(4, 8)] + [
        ("2048", 3, turn) for turn in range(8)
    ]
    assert [record.attempt for record in again] == [1, 2, 1, 1]
    whole = evaluate(GAME, _Model(), 4, max_turns=8, workers=0, history=2)
    assert [without_times(r) | {"attempt": 1} for r in again] == [without_times(r) for r in whole]


def test_records_that_nobody_asks_for_are_not_kept():
    first = evaluate(GAME, _Model({("2048", 1, 4)}), 3, max_turns=8, workers=0)
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
    assert evaluate(GAME, _Model(), 12, **options, collect=False) == []
    assert most <= 3  # the unfinished one, the one at hand, and the one before it
    kept = evaluate(GAME, _Model(), 12, **(options | {"resume": earlier()}))
    assert len(kept) == 12
    assert most > 10


def test_an_unfinished_episode_of_another_game_version_starts_afresh():
    first = evaluate(GAME, _Model({("2048", 0, 4)}), 1, max_turns=6, workers=0)
    turns = first[0].turns
    changed = turns[2].model_copy(update={"prompt": "as an older version had it"})
    policy = _Model()
    again = evaluate(
        GAME,
        policy,
        1,
        max_turns=6,
        workers=0,
        resume=[first[0].model_copy(update={"turns": (*turns[:2], changed, turns[3])})],
    )
    assert policy.asked == [("2048", 0, turn) for turn in range(6)]
    assert again[0].status == "turn limit"


def test_what_a_policy_loads_is_told_until_it_is_ready():
    told = []

    class Loads(_Model):
        loading = "a checkpoint"

        async def open(self):
            told.append("open")

    evaluate(GAME, Loads(), 1, max_turns=2, workers=0, hooks=Hooks(told.append, on_turns=lambda _: told.append("turn")))
    assert told == ["a checkpoint", "open", None, "turn", "turn"]


def test_a_run_stops_when_nothing_is_answered_any_more():
    reasons = []
    fails = {("2048", seed, 0) for seed in range(100)}
    policy = _Model(fails)
    records = evaluate(GAME, policy, 50, max_turns=3, workers=0, concurrency=4, hooks=Hooks(on_stop=reasons.append))
    assert 10 <= len(policy.asked) <= 13
    assert {record.status for record in records if record.end_reason != reasons[0]} == {"error"}
    assert reasons == ["10 episodes in a row ended as errors, the last with: the server is away"]


def test_a_budget_of_tokens_stops_the_run_and_keeps_what_was_played():
    reasons = []
    records = evaluate(
        GAME,
        _Model(tokens=5),
        10,
        max_turns=4,
        workers=0,
        concurrency=2,
        budget=Budget(budget_tokens=100),
        hooks=Hooks(on_stop=reasons.append),
    )
    used = sum(turn.prompt_tokens + turn.completion_tokens for record in records for turn in record.turns)
    assert 100 <= used <= 110  # what was being asked when the budget was used up is answered
    assert {record.status for record in records} == {"turn limit", "stopped"}
    assert reasons == ["the budget of 100 tokens is used up"]
    more = evaluate(
        GAME, _Model(tokens=5), 10, max_turns=4, workers=0, resume=records, budget=Budget(budget_tokens=1000)
    )
    assert [record.score for record in more] == [record.score for record in evaluate(GAME, "random", 10, max_turns=4)]


def test_a_budget_of_cost_counts_what_an_earlier_part_of_the_run_spent():
    budget = Budget(price_in=1e6, price_out=2e6, budget_cost=60)
    records = evaluate(GAME, _Model(tokens=5), 4, max_turns=3, workers=0, concurrency=1, budget=budget)
    assert [turn.cost for turn in records[0].turns] == [15.0] * 3
    assert sum(len(record.turns) for record in records) == 4
    policy = _Model(tokens=5)
    assert evaluate(GAME, policy, 4, max_turns=3, workers=0, resume=records, budget=budget)[0] == records[0]
    assert policy.asked == []


def test_a_budget_needs_a_policy_that_counts_tokens():
    with pytest.raises(PolicyError, match="prompt_tokens and completion_tokens"):
        evaluate(GAME, _Model(), 1, max_turns=1, workers=0, budget=Budget(budget_tokens=1))


def test_a_budget_is_refused_before_anything_is_asked_where_nobody_counts():
    with pytest.raises(UsageError, match="random does not count tokens"):
        evaluate(GAME, "random", 1, max_turns=1, workers=0, budget=Budget(budget_tokens=1))


class _DoesNotClose(_Model):
    async def close(self):
        raise RuntimeError("it does not close")


def test_what_was_played_is_kept_also_if_the_policy_does_not_close():
    class Fails(_DoesNotClose):
        async def respond(self, images, prompt):
            if prompt.turn == 2:
                raise PolicyError("it broke")
            return await super().respond(images, prompt)

    kept = []
    with pytest.raises((PolicyError, RuntimeError)):
        evaluate(GAME, Fails(), 1, max_turns=5, workers=0, hooks=Hooks(on_episode=kept.append))
    assert [(record.status, len(record.turns)) for record in kept] == [("stopped", 2)]


def test_numbers_of_numpy_are_numbers():
    made = evaluate(
        "2048", "random", np.int64(2), max_turns=np.int8(1), seed=np.uint8(255), concurrency=np.int16(1), workers=0
    )
    assert [record.seed for record in made] == [255, 256]
    with pytest.raises(UsageError, match="episodes must be an integer of at least 1, got "):
        evaluate("2048", "random", np.float64(2), workers=0)
    with pytest.raises(UsageError, match=r"max_tokens must be an integer of at least 1, got .*5.*: write int\(...\)"):
        SamplingOptions(max_tokens=np.int64(5))


def test_a_resumed_run_tells_of_new_turns_only():
    first = evaluate(GAME, _Model({("2048", 0, 4)}), 1, max_turns=6, workers=0)
    told = []
    evaluate(GAME, _Model(), 1, max_turns=6, workers=0, resume=first, hooks=Hooks(on_turns=told.extend))
    assert [turn.turn for turn in told] == [5, 6]


@pytest.mark.parametrize(
    ("other", "different"),
    [
        ({"max_turns": 9}, "max_turns was 30 and is 9"),
        ({"history": 1}, "history was 0 and is 1"),
        ({"reward": RewardConfig(illegal=-1.0)}, "reward.illegal was None and is -1.0"),
        ({"size": 96}, "game.config.size was 64 and is 96"),
    ],
)
def test_records_of_another_configuration_are_not_gone_on_with(random_records, other, different):
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
def test_a_budget_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Budget(**options)


def test_several_games_are_played_with_the_same_seeds():
    games = [GAME, vlmgym.make_game("swap", size=256)]
    together = evaluate(games, "random", 2, max_turns=5, seed=3, workers=0)
    assert [record.key for record in together] == [(game.id, seed) for game in games for seed in (3, 4)]
    alone = [record for game in games for record in evaluate(game, "random", 2, max_turns=5, seed=3, workers=0)]
    assert [without_times(record) for record in together] == [without_times(record) for record in alone]
    with pytest.raises(UsageError, match="a game is named twice"):
        evaluate([GAME, GAME], "random", 2)


def test_images_of_earlier_turns_come_before_that_of_the_position():
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
    assert "Turn 2 (played" in prompt or "Turn 2 (illegal" in prompt
    assert "Turn 3 (image 1, " in prompt
    assert "Turn 4 (image 2, " in prompt
    assert "image" not in record.turns[0].prompt.partition("Respond in exactly this form")[2]
