"""The policy `openai`: requests, responses and options."""

import base64
import contextlib
import io
import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.api_server import GAME, GOOD, UP, ApiServer, as_json, completion, first, play, refusal, well_behaved
from tests.commands import BARE
from tests.playing import CHARACTERS
from vlmgym.policies.openai.client import Retryable, read_completion
from vlmgym.runs.store import read_run
from vlmgym.sandbox.core.reward import Outcome

pytestmark = pytest.mark.usefixtures("quick_retries")


def test_request_has_images_then_text():
    (record,), server = play(well_behaved, turns=3, detail="low")
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 3
    for request, turn in zip(server.requests, record.turns, strict=True):
        (message,) = request.body["messages"]
        assert message["role"] == "user"
        assert [part["type"] for part in message["content"]] == ["image_url", "text"]
        assert request.texts == [turn.prompt]
        (image,) = request.images
        assert image["detail"] == "low"
        head, _, data = image["url"].partition(",")
        assert head == "data:image/png;base64"
        drawn = GAME.draw(GAME.from_data(turn.state))
        with Image.open(io.BytesIO(base64.b64decode(data))) as decoded:
            np.testing.assert_array_equal(np.asarray(decoded), drawn)
        assert set(request.body) == {"model", "messages"}


def test_sampling_options_and_extra_body_are_sent():
    _, server = play(
        well_behaved,
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        max_tokens=50,
        enable_thinking=False,
        extra_body='{"min_p": 0.1}',
    )
    sent = {name: value for name, value in server.requests[0].body.items() if name != "messages"}
    assert sent == {
        "model": "tiny",
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 50,
        "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_request_seeds_do_not_depend_on_order_or_retries():
    def seeds(behaviour, **options):
        _, server = play(behaviour, episodes=3, turns=3, **options)
        return [(request.body["messages"][0]["content"][0]["image_url"]["url"], request.body["seed"])
                for request in server.requests]  # fmt: skip

    same = seeds(lambda _: GOOD, sample_seed=5)
    assert len({seed for _, seed in same}) == 9
    assert all(0 <= seed < 2**31 for _, seed in same)
    again = seeds(first([refusal(500)] * 4, lambda _: GOOD), sample_seed=5, concurrency=1)
    assert len(again) == 13
    assert set(again) == set(same)
    assert not {seed for _, seed in same} & {seed for _, seed in seeds(lambda _: GOOD, sample_seed=6)}


def test_reply_details_are_recorded():
    (record,), _ = play(lambda _: completion(UP, reasoning_content="hm"))
    (turn,) = record.turns
    assert (turn.response, turn.finish_reason, turn.reasoning) == (UP, "stop", "hm")
    assert (turn.prompt_tokens, turn.completion_tokens, turn.requests) == (100, 7, 1)
    (record,), _ = play(lambda _: as_json({"choices": [{"message": {"content": UP, "reasoning": "hm"}}]}))
    (turn,) = record.turns
    assert (turn.response, turn.finish_reason, turn.reasoning) == (UP, None, "hm")
    assert (turn.prompt_tokens, turn.completion_tokens) == (None, None)


def thinking(inner):
    return {"type": "thinking", "thinking": inner}


def texts(*words):
    return [{"type": "text", "text": word} for word in words]


@pytest.mark.parametrize(
    ("content", "response", "reasoning"),
    [
        ([thinking(texts("h", "m")), *texts("<answer>", "up</answer>")], UP, "hm"),
        ([thinking("h"), *texts("<answer>"), thinking("m"), *texts("up</answer>")], UP, "hm"),
        ([thinking([*texts("hm"), {"type": "reference", "reference_ids": [1]}])], "", "hm"),
        ([thinking([]), *texts(UP), {"type": "reference", "reference_ids": [1]}], UP, None),
    ],
)
def test_content_parts_are_response_and_reasoning(content, response, reasoning):
    reply = read_completion(completion(content).body, str)
    assert (reply.text, reply.reasoning) == (response, reasoning)


def test_latency_excludes_retries():
    late = as_json({}, 503, {"Retry-After": "0.3"})
    began = time.monotonic()
    (record,), _ = play(first([late], lambda _: completion(UP, delay=0.1)))
    assert record.turns[0].requests == 2
    assert 0.1 <= record.turns[0].latency <= time.monotonic() - began - 0.3


@pytest.mark.parametrize(
    ("answer", "response", "reason"),
    [
        (completion(None, "length"), "", "length"),
        (completion(None, "content_filter"), "", "content_filter"),
        (completion("", None), "", None),
        (completion(None, None, refusal="I cannot help with that."), "I cannot help with that.", None),
        (completion("", "stop", refusal="I cannot."), "I cannot.", "stop"),
        (completion("<answer>sideways</answer>"), "<answer>sideways</answer>", "stop"),
    ],
)
def test_responses_of_the_model_are_scored(answer, response, reason):
    (record,), server = play(lambda _: answer, turns=2)
    assert (record.status, record.score) == ("turn limit", 0.0)
    turns = [(turn.response, turn.finish_reason, turn.outcome) for turn in record.turns]
    assert turns == [(response, reason, Outcome.UNPARSABLE)] * 2
    assert len(server.requests) == 2


CONTROL = "".join(map(chr, range(32))) + "\x7f\x1b[2J\u202e"
SURROGATES = "\ud800 \udc00\ud83d"
HTML = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def test_strange_responses_are_recorded_verbatim(run, tmp_path):
    text, recorded = CONTROL + HTML + SURROGATES, CONTROL + HTML + r"\ud800 \udc00\ud83d"
    with ApiServer(lambda _: completion(text, reasoning=text)).running() as server:
        options = ["--policy", "openai", "--model", "m", "--base-url", server.url, "--output-dir", "o"]
        done = run("eval", "2048", *options, *BARE, "--episodes", 1)
    assert done.code == 0, done.err
    (record,) = read_run(tmp_path / "o").episodes
    assert {(turn.response, turn.reasoning) for turn in record.turns} == {(recorded, recorded)}
    assert "\x1b[2J" not in done.out + done.err


FIELDS = ("choices", "message", "content", "error", "usage", "refusal", "finish_reason", "prompt_tokens", "reasoning")
VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(CHARACTERS)


@given(st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner)))
def test_any_json_body(data):
    with contextlib.suppress(Retryable):
        reply = read_completion(json.dumps(data).encode(), str)
        assert data["choices"][0]["message"].get("content") in (reply.text, None) or "refusal" in json.dumps(data)


def test_invalid_token_counts():
    for wrong in (-1, 1.5, True, "7", 10**400, None, [1]):
        body = {**json.loads(GOOD.body), "usage": {"prompt_tokens": wrong, "completion_tokens": 3}}
        reply = read_completion(json.dumps(body).encode(), str)
        assert (reply.prompt_tokens, reply.completion_tokens) == (None, 3)
