"""Episodes played by `evaluate`, and their records."""

import asyncio
import json

import numpy as np
import pytest

import vlmgym
from tests.playing import GAME, Model, summarise, without_times
from vlmgym.errors import UsageError
from vlmgym.evaluation import EpisodeRecord, GameRunRecord, Hooks, evaluate
from vlmgym.policies import random_response
from vlmgym.policies.base import SamplingOptions
from vlmgym.rollout.turn import TURN_LIMIT
from vlmgym.runs.record import game_run_document
from vlmgym.sandbox.core.prompt import LONGEST_PAST_RESPONSE
from vlmgym.sandbox.core.reward import Outcome


def answers(word):
    def policy(images_batch, prompt_batch):
        return [f"<answer>{word}</answer>" for _ in prompt_batch]

    return policy


def at_random(images_batch, prompt_batch):
    return [random_response(prompt) for prompt in prompt_batch]


@pytest.fixture(scope="module")
def random_records():
    return evaluate(GAME, "random", 3, max_turns=30, seed=5, workers=0)


@pytest.mark.parametrize(
    ("policy", "options"), [("random", {"workers": 1}), (at_random, {"workers": 2, "concurrency": 2})]
)
def test_records_do_not_depend_on_workers(random_records, policy, options):
    again = evaluate(GAME, policy, 3, max_turns=30, seed=5, **options)
    assert [without_times(record) for record in again] == [without_times(record) for record in random_records]


def test_records_survive_json(random_records):
    run = GameRunRecord(summary=summarise(random_records), episodes=tuple(random_records))
    lines = [record.model_dump_json().encode() for record in random_records]
    document = b"".join(game_run_document(run.summary, lines))
    assert GameRunRecord.model_validate_json(document) == run
    assert document.splitlines()[-4:] == [*(line + b"," for line in lines[:-1]), lines[-1], b"]}"]


def test_unknown_fields_are_ignored_but_old_records_rejected(random_records):
    record = random_records[0]
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


def test_loading_hook():
    events = []

    class Loads(Model):
        loading = "a checkpoint"

        async def open(self):
            events.append("open")

    evaluate(
        GAME, Loads(), 1, max_turns=2, workers=0, hooks=Hooks(events.append, on_turns=lambda _: events.append("turn"))
    )
    assert events == ["a checkpoint", "open", None, "turn", "turn"]


def test_numpy_integers_are_accepted_as_arguments():
    made = evaluate(
        "2048", "random", np.int64(2), max_turns=np.int8(1), seed=np.uint8(255), concurrency=np.int16(1), workers=0
    )
    assert [record.seed for record in made] == [255, 256]
    with pytest.raises(UsageError, match="episodes must be an integer"):
        evaluate("2048", "random", np.float64(2), workers=0)
    with pytest.raises(UsageError, match="write int"):
        SamplingOptions(max_tokens=np.int64(5))


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
