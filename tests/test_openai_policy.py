import asyncio
import base64
import contextlib
import gzip
import io
import json
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import vlmgym
from tests.api_server import Answer, ApiServer, as_json, completion, first, refusal, well_behaved
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.errors import PolicyError, UsageError
from vlmgym.evaluation import Budget, EvalConfig, Hooks, evaluate
from vlmgym.policies import openai_client
from vlmgym.policies.chat_api import MAX_TEXT, TRUNCATED, InvalidCompletion, image_url, read_completion
from vlmgym.policies.openai import OpenAIOptions, OpenAIPolicy
from vlmgym.policies.openai_client import MAX_WAIT, retry_after
from vlmgym.records.store import read_run
from vlmgym.rollout.runner import MAX_CONSECUTIVE_ERRORS
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome

GAME = vlmgym.make_game("2048", size=64)
UP = "<answer>up</answer>"
KEY = "sk-4f9c/0a+TheSecretOfThisTest=="


@pytest.fixture(autouse=True)
def no_key_and_short_waits(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(openai_client, "FIRST_BACKOFF", 0.01)


def policy(server, **options):
    return OpenAIPolicy(OpenAIOptions(**{"base_url": server.url, "model": "tiny", "timeout": 5.0} | options))


def play(behaviour, episodes=1, turns=1, seed=0, concurrency=8, resume=(), hooks=None, budget=None, **options):
    """Run an evaluation; return its records and the server."""
    with ApiServer(behaviour).running() as server:
        records = evaluate(
            GAME,
            policy(server, **options),
            episodes,
            max_turns=turns,
            seed=seed,
            concurrency=concurrency,
            workers=0,
            resume=resume,
            hooks=hooks or Hooks(),
            budget=budget or Budget(),
        )
    return records, server


def shows(request, url):
    return request.images[-1]["url"] == url


def played(record):
    """Return a record as data, without times and request counts."""
    data = record.model_dump(mode="json")
    del data["started"], data["attempt"]
    for turn in data["turns"]:
        del turn["latency"], turn["requests"]
    return data


# Requests and responses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("format", "exact"), [("png", True), ("jpeg", False)])
def test_request_has_images_then_text(format, exact):
    (record,), server = play(well_behaved, turns=3, image_format=format, detail="low")
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 3
    for request, turn in zip(server.requests, record.turns, strict=True):
        (message,) = request.body["messages"]
        assert message["role"] == "user"
        assert [part["type"] for part in message["content"]] == ["image_url", "text"]
        assert request.texts == [turn.prompt]
        (image,) = request.images
        assert image["detail"] == "low"
        head, _, data = image["url"].partition(",")
        assert head == f"data:image/{format};base64"
        drawn = GAME.draw(GAME.from_data(turn.state))
        with Image.open(io.BytesIO(base64.b64decode(data))) as decoded:
            off = np.abs(np.asarray(decoded).astype(int) - drawn)
        assert off.max() == 0 if exact else off.mean() < 8
        assert set(request.body) == {"model", "messages"}


def test_images_of_earlier_turns_come_first():
    with ApiServer().running() as server:
        evaluate(GAME, policy(server), 1, max_turns=3, workers=0, history=2, history_images=2)
    urls = [[image["url"] for image in request.images] for request in server.requests]
    assert [len(shown) for shown in urls] == [1, 2, 3]
    assert urls[2] == [urls[0][0], urls[1][-1], urls[2][-1]]


def test_sampling_options_and_extra_body_are_sent():
    _, server = play(
        well_behaved,
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        max_tokens=50,
        stop=("###", "END"),
        extra_body='{"min_p": 0.1, "chat_template_kwargs": {"enable_thinking": false}}',
    )
    sent = {name: value for name, value in server.requests[0].body.items() if name != "messages"}
    assert sent == {
        "model": "tiny",
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 50,
        "stop": ["###", "END"],
        "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_request_seeds_do_not_depend_on_order_or_retries():
    def seeds(behaviour, **options):
        _, server = play(behaviour, episodes=3, turns=3, **options)
        return [(request.body["messages"][0]["content"][0]["image_url"]["url"], request.body["seed"])
                for request in server.requests]  # fmt: skip

    same = seeds(lambda _: completion(UP), sample_seed=5)
    assert len({seed for _, seed in same}) == 9
    assert all(0 <= seed < 2**31 for _, seed in same)
    again = seeds(first([refusal(500)] * 4, lambda _: completion(UP)), sample_seed=5, concurrency=1)
    assert len(again) == 13
    assert set(again) == set(same)
    assert not {seed for _, seed in same} & {seed for _, seed in seeds(lambda _: completion(UP), sample_seed=6)}


def test_openai_gets_max_completion_tokens(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    openai = OpenAIPolicy(OpenAIOptions(model="gpt", max_tokens=9))
    prompt = vlmgym.policies.Prompt("text", GAME, 0, 0)
    body = openai._body([], prompt)
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


def test_reply_details_are_recorded():
    (record,), _ = play(lambda _: completion(UP, reasoning_content="hm", delay=0.1), turns=1)
    (turn,) = record.turns
    assert (turn.response, turn.finish_reason, turn.reasoning) == (UP, "stop", "hm")
    assert (turn.prompt_tokens, turn.completion_tokens, turn.requests) == (100, 7, 1)
    assert 0.1 <= turn.latency < 0.5
    (record,), _ = play(lambda _: as_json({"choices": [{"message": {"content": UP, "reasoning": "hm"}}]}), turns=1)
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
        ([thinking(texts("h", "m")), *texts(UP)], UP, "hm"),
        ([{**thinking(texts(f"hm {UP}")), "closed": True}, *texts("<answer>", "up</answer>")], UP, f"hm {UP}"),
        ([thinking("h"), *texts("<answer>"), thinking("m"), *texts("up</answer>")], UP, "hm"),
        ([thinking([*texts("hm"), {"type": "reference", "reference_ids": [1]}])], "", "hm"),
        ([thinking([]), *texts(UP), {"type": "reference", "reference_ids": [1]}], UP, None),
    ],
)
def test_content_parts_are_response_and_reasoning(content, response, reasoning):
    (record,), server = play(lambda _: completion(content))
    (turn,) = record.turns
    assert (turn.response, turn.reasoning) == (response, reasoning)
    assert turn.outcome is (Outcome.PLAYED if response else Outcome.UNPARSABLE)
    assert len(server.requests) == 1


def test_latency_excludes_retries():
    late = as_json({}, 503, {"Retry-After": "0.3"})
    (record,), _ = play(first([late], lambda _: completion(UP, delay=0.1)))
    assert record.turns[0].requests == 2
    assert 0.1 <= record.turns[0].latency < 0.3


@pytest.mark.parametrize(
    ("answer", "response", "reason"),
    [
        (completion(None, "length"), "", "length"),
        (completion(None, "content_filter"), "", "content_filter"),
        (completion("", None), "", None),
        (completion(None, None, refusal="I cannot help with that."), "I cannot help with that.", None),
        (completion("", "stop", refusal="I cannot."), "I cannot.", "stop"),
        (completion("<answer>sideways</answer>"), "<answer>sideways</answer>", "stop"),
        (completion([{"type": "text", "text": f"{name} "} for name in "ab"]), "a b ", "stop"),
        (completion("<answer>up</answer><answer>down</answer>"), "<answer>up</answer><answer>down</answer>", "stop"),
    ],
)
def test_responses_of_the_model_are_scored(answer, response, reason):
    (record,), server = play(lambda _: answer, turns=2)
    assert (record.status, record.score) == ("turn limit", 0.0)
    assert [(turn.response, turn.finish_reason, turn.outcome) for turn in record.turns] == [
        (response, reason, Outcome.UNPARSABLE)
    ] * 2
    assert len(server.requests) == 2


# Server failures ---------------------------------------------------------------------------------------------------

GOOD = completion(UP)
FAULTS = {
    "429": refusal(429),
    "408": refusal(408),
    "500": refusal(500),
    "502 with HTML": Answer(502, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"}),
    "503": refusal(503),
    "529": refusal(529),
    "hangs": Answer(delay=30),
    "resets the connection": Answer(reset=True),
    "cut in the body": Answer(200, GOOD.body, GOOD.headers, cut=20),
    "empty after headers": Answer(200, GOOD.body, GOOD.headers, cut=0),
    "slower than the timeout": Answer(200, b" " * 10**5 + GOOD.body, GOOD.headers, pause=0.1),
    "endless body": Answer(200, b" " * 2**16, endless=True),
    "endless error": Answer(500, b" " * 2**16, endless=True),
    "error with status 200": as_json({"error": {"message": "overloaded", "code": 502}}),
    "no choices": as_json({"choices": []}),
    "null choices": as_json({"choices": None}),
    "no message": as_json({"choices": [{"finish_reason": "stop"}]}),
    "no content": as_json({"choices": [{"message": {"role": "assistant"}, "finish_reason": None}]}),
    "unknown content part": completion([{"type": "text", "text": UP}, {"type": "audio", "audio": {"id": "a"}}]),
    "empty content list": completion([]),
    "content part without text": completion([{"type": "text"}]),
    "content part is a string": completion([UP]),
    "thinking is an object": completion([{"type": "thinking", "thinking": {"text": "hm"}}]),
    "thinking is a list of strings": completion([{"type": "thinking", "thinking": ["hm"]}]),
    "finish reason error": completion(UP, "error"),
    "finish reason abort": completion("", "abort"),
    "HTML": Answer(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
    "empty body": Answer(200, b"", {"Content-Type": "application/json"}),
    "JSON array": as_json([1]),
    "truncated JSON": Answer(200, GOOD.body[:-5], GOOD.headers),
    "deeply nested JSON": Answer(200, b"[" * 10**6, {"Content-Type": "application/json"}),
    "invalid UTF-8": Answer(200, GOOD.body.replace(b"up", b"\xff\xfe"), GOOD.headers),
    "unrequested compression": Answer(200, gzip.compress(GOOD.body), {"Content-Encoding": "gzip"}),
    "204": Answer(204),
    "not HTTP": Answer(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "endless header": Answer(raw=b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10**6),
    "empty response": Answer(raw=b""),
}
SLOW = ("hangs", "slower than the timeout")


@pytest.mark.parametrize("fault", FAULTS)
def test_temporary_failure_costs_one_request(fault):
    (record,), server = play(first([FAULTS[fault]], lambda _: GOOD), timeout=0.4 if fault in SLOW else 5.0)
    assert [turn.response for turn in record.turns] == [UP]
    assert record.turns[0].requests == 2
    assert len(server.requests) == 2


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_permanent_failure_ends_the_episode_without_score(retries):
    lost = image_url("png", GAME.draw(Episode(GAME, 1).state))

    def behaviour(request):
        return refusal(500, "out of memory") if shows(request, lost) else well_behaved(request)

    records, server = play(behaviour, episodes=3, turns=2, retries=retries)
    whole, _ = play(well_behaved, episodes=3, turns=2)
    assert [record.status for record in records] == ["turn limit", "error", "turn limit"]
    assert records[1].score is None
    assert records[1].turns == ()
    count = f"no response after {retries + 1} requests, last error" if retries else "no response"
    assert records[1].end_reason == f"{count}: HTTP 500: out of memory"
    assert len([request for request in server.requests if shows(request, lost)]) == retries + 1
    assert [played(record) for record in records[::2]] == [played(record) for record in whole[::2]]


@pytest.mark.parametrize("fault", FAULTS)
def test_failures_are_never_scored(fault):
    (record,), server = play(lambda _: FAULTS[fault], retries=1, timeout=0.2 if fault in SLOW else 5.0)
    assert (record.status, record.score, record.turns) == ("error", None, ())
    assert len(record.end_reason) < 400
    assert record.end_reason.isprintable()
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", ["endless body", "endless error"])
def test_endless_body(fault):
    (record,), _ = play(lambda _: FAULTS[fault], retries=0, timeout=30.0)
    assert "exceeds 16,777,216 bytes" in record.end_reason


@pytest.mark.parametrize(("status", "end"), [(200, "no response: {}"), (400, "HTTP 400: {}")])
@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_unrequested_encoding(status, end, encoding):
    answer = Answer(status, gzip.compress(GOOD.body), {"Content-Encoding": encoding})
    (record,), _ = play(lambda _: answer, retries=0)
    assert end.format(f"the body has the unrequested encoding {encoding}") in record.end_reason


def test_missing_server():
    with ApiServer().running() as server:
        pass
    records = evaluate(GAME, policy(server, retries=1), 2, max_turns=1, workers=0)
    assert [record.status for record in records] == ["error"] * 2
    assert records[0].end_reason.startswith("no response after 2 requests, last error: connection failed")


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_rejected_request_is_not_retried(status):
    def behaviour(request):
        return refusal(status, "the image is too large") if request.number == 3 else well_behaved(request)

    records, server = play(behaviour, episodes=3, turns=2, concurrency=1)
    assert [(record.status, len(record.turns)) for record in records] == [
        ("turn limit", 2),
        ("error", 1),
        ("turn limit", 2),
    ]
    assert records[1].end_reason == f"the server rejected the request (HTTP {status}: the image is too large)"
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal(401, "bad key"), r"rejects the API key \(HTTP 401: bad key\).* --api-key-env"),
        (refusal(404, "no model tiny"), r"unknown model or URL \(HTTP 404: no model tiny\)"),
        (as_json({"detail": "Not Found"}, 404), r"HTTP 404: Not Found"),
        (Answer(308, b"", {"Location": "https://example.org/v1"}), "redirects to https://example.org/v1"),
    ],
)
def test_wrong_key_model_or_url_ends_the_run(answer, message):
    with ApiServer(lambda _: answer).running() as server, pytest.raises(PolicyError, match=message):
        evaluate(GAME, policy(server), 5, max_turns=2, concurrency=1, workers=0)
    assert len(server.requests) == 1


def test_rejected_key_ends_the_run_and_keeps_episodes():
    kept = []
    with pytest.raises(PolicyError, match="rejects the API key"):
        play(
            lambda request: refusal(401) if request.number == 5 else well_behaved(request),
            episodes=5,
            turns=2,
            concurrency=1,
            hooks=Hooks(on_episode=kept.append),
        )
    assert [(record.seed, record.status) for record in kept] == [(0, "turn limit"), (1, "turn limit"), (2, "stopped")]


@pytest.mark.parametrize("answer", [refusal(404), Answer(307, b"", {"Location": "https://example.org/"})])
def test_temporary_404_or_redirect_costs_an_episode(answer):
    records, _ = play(first([GOOD, answer]), episodes=3, turns=2, concurrency=1)
    assert [record.status for record in records] == ["error", "turn limit", "turn limit"]
    assert f"HTTP {answer.status}" in records[0].end_reason


def test_flagged_prompt_ends_only_its_episode():
    flagged = image_url("png", GAME.draw(Episode(GAME, 0).state))

    def behaviour(request):
        return refusal(403, "flagged") if shows(request, flagged) else well_behaved(request)

    records, _ = play(behaviour, episodes=3, turns=2, concurrency=1)
    assert [record.status for record in records] == ["error", "turn limit", "turn limit"]
    assert (records[0].score, records[0].end_reason) == (None, "the server rejected the request (HTTP 403: flagged)")
    part = [records[0], records[2]]  # an interrupted run, without one more episode
    resumed, server = play(behaviour, episodes=3, turns=2, concurrency=1, resume=part)
    assert [(record.status, record.attempt) for record in resumed] == [
        ("error", 2),
        ("turn limit", 1),
        ("turn limit", 1),
    ]
    assert len(server.requests) == 3
    play(behaviour, turns=2, resume=resumed[:1])  # the flagged prompt alone


def test_many_rejected_requests_stop_the_run():
    stops = []
    records, server = play(
        lambda _: refusal(403, "not in your country"), episodes=30, concurrency=1, hooks=Hooks(on_stop=stops.append)
    )
    assert [record.status for record in records] == ["error"] * MAX_CONSECUTIVE_ERRORS
    assert len(server.requests) == MAX_CONSECUTIVE_ERRORS
    assert "HTTP 403: not in your country" in stops[0]


# Retries and rate limits ---------------------------------------------------------------------------------------------


def test_retry_after_delays_all_requests():
    with ApiServer(first([refusal(429, Retry_After="0.6")])).running() as server:
        began = time.monotonic()
        evaluate(GAME, policy(server, max_requests=2), 8, max_turns=1, workers=0)
    late = [request.arrived - began for request in server.requests]
    assert len(late) == 9
    assert sum(seconds < 0.4 for seconds in late) <= 3  # the first, and requests that began before its response
    assert all(seconds < 0.4 or seconds >= 0.6 for seconds in late)


def test_exponential_backoff(monkeypatch):
    monkeypatch.setattr(openai_client, "FIRST_BACKOFF", 0.2)
    monkeypatch.setattr(openai_client.wait_random_exponential, "__call__", _upper_end)
    _, server = play(lambda _: refusal(500), retries=3)
    waits = np.diff([request.arrived for request in server.requests])
    assert waits == pytest.approx([0.2, 0.4, 0.8], abs=0.15)


def _upper_end(self, state):
    """Return the longest wait within the jitter."""
    return super(type(self), self).__call__(state)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 1.5 ", 1.5),
        ("-3", 0),
        ("1e99", MAX_WAIT),
        ("inf", MAX_WAIT),
        ("nan", None),
        ("", None),
        ("soon", None),
        ("Wed, 99 Foo 2026 99:99:99 GMT", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2915 07:28:00 GMT", MAX_WAIT),
    ],
)
def test_retry_after_header(value, seconds):
    assert retry_after({"retry-after": value}) == seconds


def test_retry_after_date():
    for zone in (timezone.utc, None):
        date = format_datetime(
            datetime.now(timezone.utc).replace(tzinfo=zone) + timedelta(seconds=20), usegmt=bool(zone)
        )
        assert 18 < retry_after({"retry-after": date}) <= 20
    assert retry_after({}) is None


@given(st.text(max_size=30))
def test_retry_after_accepts_any_text(value):
    assert retry_after({"retry-after": value}) is None or 0 <= retry_after({"retry-after": value}) <= MAX_WAIT


def test_max_requests():
    _, server = play(lambda _: completion(UP, delay=0.02), episodes=12, turns=2, concurrency=12, max_requests=3)
    assert server.max_at_once == 3


def test_concurrency_drops_on_429_and_recovers():
    busy = 4  # concurrent requests that the server accepts at first

    def behaviour(request):
        crowded = request.at_once > busy and request.number < 200
        answer = refusal(429) if crowded else completion(UP)
        # long delays make the first requests overlap, even on a slow machine
        return replace(answer, delay=0.5 if request.number < 40 else 0.0 if crowded else 0.01)

    with ApiServer(behaviour).running() as server:
        openai = policy(server, max_requests=32, retries=20)
        records = evaluate(GAME, openai, 32, max_turns=25, workers=0)
    assert {record.status for record in records} == {"turn limit"}
    at_once = [request.at_once for request in server.requests]
    assert max(at_once[:40]) > 2 * busy
    assert np.median(at_once[100:200]) <= 2 * busy
    assert len(server.requests) < 1.3 * 32 * 25
    assert openai._client.limit.width >= 24


# Keys ----------------------------------------------------------------------------------------------------------------


def echoing(status, translate=str):
    """Make a server that echoes the key in every place."""

    def behaviour(request):
        sent = translate(request.headers["authorization"])
        if status == 200:
            response = completion(f"{sent} {UP}", f"stop {sent}", reasoning=sent)
        else:
            response = refusal(status, f"{sent} is {'x' * 250} {sent} {sent[:300]}")
        return Answer(
            response.status, response.body, {**response.headers, "X-Sent": sent, "Location": f"http://h/{sent}"}
        )

    return behaviour


@dataclass(frozen=True)
class Done:
    """Exit code, output and files of a command."""

    code: int
    stdout: str
    stderr: str
    files: dict[str, str]

    @property
    def everything(self):
        return "".join([self.stdout, self.stderr, *self.files, *self.files.values()])


@pytest.fixture
def run_eval(tmp_path, capfd, monkeypatch):
    """Run `vlmgym eval` with the folder `tmp_path / "run"`, in this process (faster) or in a new one."""

    def run(url, *args, key="", process=False):
        out = tmp_path / "run"
        where = ["--resume" if out.exists() else "--output-dir", str(out), "--base-url", url, "--model", "tiny"]
        plain = ["--size", "64", "--videos", "0", "--no-report", "--workers", "0"]
        command = ["eval", "2048", "--policy", "openai", *where, *plain, *map(str, args)]
        if key:
            monkeypatch.setenv("MINE", key)
            command += ["--api-key-env", "MINE"]
        code = 0
        if process:
            done = subprocess.run([sys.executable, "-m", "vlmgym", *command], capture_output=True, text=True)
            code, stdout, stderr = done.returncode, done.stdout, done.stderr
        else:
            try:
                main(command)
            except SystemExit as error:
                code = error.code
            stdout, stderr = capfd.readouterr()
        files = {str(path): path.read_text("utf-8", "replace") for path in out.rglob("*") if path.is_file()}
        return Done(code, stdout, " ".join(stderr.split()), files)

    return run


@pytest.mark.parametrize(("status", "code"), [(200, 0), (400, 1), (401, 1), (500, 1), (307, 1)])
def test_key_is_redacted_everywhere(run_eval, status, code):
    with ApiServer(echoing(status)).running() as server:
        done = run_eval(
            server.url, "--episodes", 2, "--max-turns", 2, "--retries", 1, key=KEY, process=status in (200, 401)
        )
    assert done.code == code, done.stderr
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "Traceback" not in done.stderr
    assert len(done.files) >= 2
    assert not [piece for piece in (KEY, KEY[:12], KEY[-12:]) if piece in done.everything]
    assert "[redacted]" in done.everything


@pytest.mark.parametrize("status", [200, 401])
def test_key_in_base64_is_redacted(run_eval, status):
    def sent(header):
        texts = [f"{before}{KEY}".encode() for before in ("", "user:", "key=")]
        return " ".join(code(text).decode() for text in texts for code in (base64.b64encode, base64.urlsafe_b64encode))

    with ApiServer(echoing(status, sent)).running() as server:
        done = run_eval(server.url, "--episodes", 1, "--max-turns", 1, key=KEY)
    assert "[redacted]" in done.everything
    for word in re.findall(r"[\w+/-]{12,}", done.everything, re.ASCII):
        for start in range(4):
            coded = word[start:].replace("-", "+").replace("_", "/")
            assert KEY[6:12].encode() not in base64.b64decode(coded[: len(coded) // 4 * 4]), word


def test_password_in_url_is_redacted(run_eval):
    with ApiServer(echoing(200)).running() as server:
        done = run_eval(server.url.replace("//", "//someone:swordfish%2F9@"), "--episodes", 1, "--max-turns", 1)
    assert done.code == 0, done.stderr
    login = base64.b64encode(b"someone:swordfish/9").decode()
    assert server.requests[0].headers["authorization"] == f"Basic {login}"
    assert not [secret for secret in ("swordfish", login) if secret in done.everything]
    assert server.url in done.everything


def test_errors_about_keys_do_not_show_them(monkeypatch):
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        OpenAIPolicy(OpenAIOptions(model="gpt"))
    for wrong_name in (KEY, "gsk_4f9c0aTheSecretOfThisTest"):
        with pytest.raises(UsageError) as raised:
            OpenAIPolicy(OpenAIOptions(model="tiny", base_url="http://localhost:1/v1", api_key_env=wrong_name))
        assert wrong_name not in str(raised.value)
    monkeypatch.setenv("MINE", KEY + "\n")
    with pytest.raises(UsageError) as raised:
        OpenAIPolicy(OpenAIOptions(model="tiny", api_key_env="MINE"))
    assert "whitespace" in str(raised.value)
    assert KEY not in str(raised.value)


def test_api_key_env(monkeypatch):
    monkeypatch.setenv("MINE", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    _, server = play(well_behaved, api_key_env="MINE")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(vars(OpenAIOptions(model="tiny", api_key_env="MINE")))


def secrets_of_openai(monkeypatch):
    """Set all secrets that OpenAI's library reads from the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", f"admin{KEY}")
    monkeypatch.setenv("OPENAI_ORG_ID", f"organisation{KEY}")
    monkeypatch.setenv("OPENAI_PROJECT_ID", f"project{KEY}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Mine: {KEY}\nAuthorization: Bearer {KEY}")


def test_other_servers_get_no_secrets_of_openai(monkeypatch):
    secrets_of_openai(monkeypatch)
    _, server = play(well_behaved)
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer none"
    assert KEY not in str(request.headers)
    monkeypatch.setenv("MINE", "another-key")
    _, server = play(well_behaved, api_key_env="MINE")
    assert server.requests[0].headers["authorization"] == "Bearer another-key"
    assert KEY not in str(server.requests[0].headers)
    _, server = play(well_behaved, api_key_env="OPENAI_API_KEY")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert str(server.requests[0].headers).count(KEY) == 1


def test_openai_gets_organisation_and_project(monkeypatch):
    secrets_of_openai(monkeypatch)
    body = {"model": "gpt", "messages": []}

    async def ask(url):
        client = openai_client.OpenAIClient(
            url, "a-key", None, str, at_openai=True, max_requests=1, timeout=5.0, retries=0
        )
        await client.complete(body)
        await client.close()

    with ApiServer(lambda _: GOOD).running() as server:
        asyncio.run(ask(server.url))
    headers = server.requests[0].headers
    assert (headers["openai-organization"], headers["openai-project"]) == (f"organisation{KEY}", f"project{KEY}")
    assert headers["authorization"] == "Bearer a-key"


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://api.openai.com/v1", True),
        ("https://API.OpenAI.com:443/v1/", True),
        ("https://eu.api.openai.com/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com.example.org/v1", False),
        ("https://notapi.openai.com/v1", False),
        ("https://api.openai.com@example.org/v1", False),
        ("https://example.org/api.openai.com/v1", False),
    ],
)
def test_default_key_is_for_openai_only(monkeypatch, url, own):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert OpenAIPolicy(OpenAIOptions(model="gpt", base_url=url))._key == (KEY if own else None)


@pytest.mark.parametrize(
    "fields",
    [
        {"api_key": KEY},
        {"apiKey": KEY},
        {"extra_headers": {"X-API-Key": KEY}},
        {"headers": [{"Authorization": f"Bearer {KEY}"}]},
        {"hf_token": KEY},
        {"metadata": {"password": KEY}},
    ],
)
def test_extra_body_rejects_fields_for_keys(fields):
    with pytest.raises(UsageError, match="extra_body is recorded") as raised:
        OpenAIOptions(extra_body=json.dumps(fields))
    assert KEY not in str(raised.value)


def test_extra_body_rejects_keys_in_any_field(monkeypatch):
    monkeypatch.setenv("MINE", KEY)
    where = {"model": "tiny", "base_url": "http://someone:swordfish@h/v1", "api_key_env": "MINE"}
    for secret in (KEY, "swordfish"):
        for fields in ({"a": [{"b": f"x{secret}"}]}, {secret: 1}):
            for body in (json.dumps(fields), json.dumps(fields).replace("s", "\\u0073")):
                with pytest.raises(UsageError, match="extra_body is recorded") as raised:
                    OpenAIPolicy(OpenAIOptions(**where, extra_body=body))
                assert secret not in str(raised.value)
    with pytest.raises(UsageError) as raised:
        OpenAIOptions(extra_body=f'{{"a": {KEY}}}')
    assert KEY not in str(raised.value)
    ordinary = '{"prompt_cache_key": "games", "stop_token_ids": [1], "chat_template_kwargs": {"bos_token": "<s>"}}'
    assert OpenAIPolicy(OpenAIOptions(**where, extra_body=ordinary)).options.extra_fields == json.loads(ordinary)


def test_short_keys_are_not_redacted(monkeypatch):
    monkeypatch.setenv("MINE", "up")
    (record,), _ = play(lambda _: completion(UP), api_key_env="MINE")
    assert record.turns[0].response == UP


# Hostile responses ---------------------------------------------------------------------------------------------------

CONTROL = "".join(map(chr, range(32))) + "\x7f\x1b[2J\u202e"
SURROGATES = "\ud800 \udc00\ud83d"
HTML = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        (CONTROL + UP, CONTROL + UP),
        (HTML + UP, HTML + UP),
        (SURROGATES + UP, r"\ud800 \udc00\ud83d" + UP),
    ],
)
def test_strange_responses_are_recorded_verbatim(text, recorded, run_eval, tmp_path):
    with ApiServer(lambda _: completion(text, reasoning=text)).running() as server:
        done = run_eval(server.url, "--episodes", 1, "--max-turns", 2)
    assert done.code == 0, done.stderr
    (record,) = read_run(tmp_path / "run").episodes
    assert [(turn.response, turn.reasoning) for turn in record.turns] == [(recorded, recorded)] * 2
    assert "\x1b[2J" not in done.stdout + done.stderr


def test_finish_reasons_and_errors_are_printable():
    (record,), _ = play(lambda _: completion(UP, CONTROL + SURROGATES + "x" * 1000))
    assert len(record.turns[0].finish_reason) == 60
    assert record.turns[0].finish_reason.isprintable()
    (record,), _ = play(lambda _: refusal(400, CONTROL + SURROGATES + HTML + "x" * 10**6))
    assert record.end_reason.isprintable()
    assert len(record.end_reason) < 400


def test_thousands_of_answers_are_unparsable():
    (record,), _ = play(lambda _: completion(UP * 5000))
    assert record.turns[0].outcome == Outcome.UNPARSABLE
    assert record.turns[0].response == UP * 5000


@pytest.mark.parametrize("text", [UP + "x" * 10_000_000, "x" * 10_000_000 + UP, "\x00" * 2_000_000, "🂡" * 1_200_000])
def test_huge_response_is_truncated(text):
    (record,), _ = play(lambda _: completion(text))
    (turn,) = record.turns
    assert turn.response == text[:MAX_TEXT]
    assert turn.finish_reason == TRUNCATED
    assert turn.outcome != Outcome.UNPARSABLE or not text.startswith(UP)
    assert record.score is not None


def test_huge_reasoning_is_truncated():
    (record,), _ = play(lambda _: completion(UP, reasoning="x" * 10_000_000))
    assert (record.turns[0].response, record.turns[0].finish_reason) == (UP, "stop")
    assert len(record.turns[0].reasoning) == MAX_TEXT


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda inner: st.lists(inner)
       | st.dictionaries(st.sampled_from(["choices", "message", "content", "error", "usage", "refusal",
                                          "finish_reason", "prompt_tokens", "reasoning"]), inner)))  # fmt: skip
@settings(max_examples=100)
def test_any_json_body(data):
    with contextlib.suppress(InvalidCompletion):
        reply = read_completion(json.dumps(data).encode(), str)
        assert data["choices"][0]["message"].get("content") in (reply.text, None) or "refusal" in json.dumps(data)


def test_invalid_token_counts():
    for wrong in (-1, 1.5, True, "7", 10**400, None, [1]):
        body = {**json.loads(GOOD.body), "usage": {"prompt_tokens": wrong, "completion_tokens": 3}}
        reply = read_completion(json.dumps(body).encode(), str)
        assert (reply.prompt_tokens, reply.completion_tokens) == (None, 3)
    body["usage"] = "lots"
    assert read_completion(json.dumps(body).encode(), str).completion_tokens is None


# Whole runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_failures_do_not_change_a_run(seed):
    rng = random.Random(seed)
    faults = [fault for name, fault in FAULTS.items() if name not in SLOW]

    def behaviour(request):
        return rng.choice(faults) if rng.random() < 0.4 else well_behaved(request)

    whole, server = play(well_behaved, episodes=12, turns=8, seed=3, sample_seed=1)
    assert len(server.requests) == 12 * 8
    records, rounds, requested = [], 0, 0
    while not records or any(record.score is None for record in records):
        records, server = play(
            behaviour, episodes=12, turns=8, seed=3, concurrency=5, resume=records, retries=2, sample_seed=1
        )
        rounds += 1
        requested += len(server.requests)
        assert rounds < 30
    assert [played(record) for record in records] == [played(record) for record in whole]
    assert rounds > 1
    assert requested > 12 * 8
    assert sum(turn.requests for record in records for turn in record.turns) <= requested


def test_resume_sends_only_missing_requests(run_eval, tmp_path):
    lost = image_url("png", GAME.draw(Episode(GAME, 1).state))
    args = ("--episodes", 3, "--max-turns", 2, "--retries", 0)
    with ApiServer(lambda r: refusal(500) if shows(r, lost) else well_behaved(r)).running() as server:
        done = run_eval(server.url, *args)
        assert done.code == 1
        assert "no response: HTTP 500" in done.stderr
        assert len(server.requests) == 5
        server.behaviour = well_behaved
        assert run_eval(server.url, *args, "--max-requests", 3).code == 0
        assert len(server.requests) == 7
        other = run_eval(server.url, *args, "--temperature", 1)
    assert other.code == 2
    assert "policy.options.temperature" in other.stderr
    episodes = read_run(tmp_path / "run").episodes
    assert [(record.status, record.attempt) for record in episodes] == [("turn limit", n) for n in (1, 2, 1)]
    whole, _ = play(well_behaved, episodes=3, turns=2)
    assert [record.score for record in episodes] == [record.score for record in whole]


def test_budget_stops_a_run_and_keeps_turns(run_eval, tmp_path):
    with ApiServer().running() as server:
        limits = ("--episodes", 20, "--max-turns", 3, "--concurrency", 2, "--budget-tokens", 1000)
        done = run_eval(server.url, *limits, process=True)
    assert done.code == 0, done.stderr
    assert "budget of 1,000 tokens" in done.stderr
    episodes = read_run(tmp_path / "run").episodes
    turns = [turn for record in episodes for turn in record.turns]
    assert 10 <= len(turns) <= 11  # 107 tokens each; requests in flight are finished
    assert len(server.requests) == len(turns)
    assert [record.score is None for record in episodes] == [record.status == "stopped" for record in episodes]
    assert {record.status for record in episodes} >= {"turn limit"}


def test_price_requires_token_counts():
    silent = as_json({"choices": [{"message": {"content": UP}, "finish_reason": "stop"}]})
    with pytest.raises(PolicyError, match="tokens"):
        play(lambda _: silent, budget=Budget(price_in=1.0, price_out=1.0))


def test_rejected_key_ends_a_run_with_one_sentence(run_eval, tmp_path):
    with ApiServer(first([completion(UP)] * 2, lambda _: refusal(401, "who are you?"))).running() as server:
        done = run_eval(server.url, "--episodes", 2, "--max-turns", 2, "--concurrency", 1)
    assert done.code == 1
    assert "error: the server rejects the API key (HTTP 401: who are you?)" in done.stderr
    assert [record.score is None for record in read_run(tmp_path / "run").episodes] == [False]


def test_ctrl_c_while_waiting_for_the_server(tmp_path):
    def behaviour(request):
        return well_behaved(request) if request.number < 2 else Answer(delay=60)

    with ApiServer(behaviour).running() as server:
        command = [sys.executable, "-m", "vlmgym", "eval", "2048", "--policy", "openai", "--model", "tiny"]
        where = ["--base-url", server.url, "--output-dir", str(tmp_path / "run"), "--workers", "1", "--episodes", "1"]
        process = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while len(server.requests) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    (record,) = read_run(tmp_path / "run").episodes
    assert (record.status, len(record.turns)) == ("stopped", 2)


# Options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be at least 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature must be at least 0, got nan"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_k": 0}, "top_k must be an integer of at least 1"),
        ({"max_tokens": 0}, "max_tokens must be an integer of at least 1"),
        ({"sample_seed": -1}, "sample_seed must be an integer of at least 0"),
        ({"stop": ("",)}, "stop must be a list"),
        ({"stop": "END"}, "stop must be a list"),
        ({"timeout": 0.0}, "timeout must be a positive number"),
        ({"retries": -1}, "retries must be an integer of at least 0"),
        ({"max_requests": 0}, "max_requests must be an integer of at least 1"),
        ({"image_format": "gif"}, "image_format must be one of png, jpeg, got 'gif'"),
        ({"detail": "most"}, "detail must be one of auto, low, high"),
        ({"base_url": "localhost:8000/v1"}, "base_url must be a URL"),
        ({"base_url": "http://localhost:99999/v1"}, "base_url must be a URL"),
        ({"base_url": "http:///v1"}, "base_url must be a URL"),
        ({"base_url": "http://ex..ample/v1"}, "base_url must be a URL"),
        ({"base_url": f"http://{'a' * 64}/v1"}, "base_url must be a URL"),
        ({"model": "tiny\udcff"}, "must be valid UTF-8"),
        ({"stop": ("END", "\udcff")}, "must be valid UTF-8"),
        ({"base_url": "http://localhost/v1?key=1"}, r"base_url must not contain \? or #"),
        ({"extra_body": "[1]"}, "extra_body must be a JSON object"),
        ({"extra_body": "{"}, "extra_body must be a JSON object"),
        ({"extra_body": '{"a": [NaN]}'}, "extra_body must be a JSON object"),
        ({"extra_body": '{"a": 1e999}'}, "extra_body must be a JSON object"),
        ({"extra_body": '{"a": "\\ud800"}'}, "extra_body must be a JSON object"),
        ({"extra_body": '{"\udcff": 1}'}, "extra_body must be a JSON object"),
        ({"extra_body": '{"stream": true}'}, "extra_body cannot set stream"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(UsageError, match=message):
        OpenAIOptions(**options)


def test_model_is_required():
    with pytest.raises(UsageError, match="needs --model"):
        OpenAIPolicy(OpenAIOptions(base_url="http://localhost:8000/v1"))


@pytest.mark.parametrize("file", ["missing.pem", "empty.pem"])
def test_unreadable_certificates(file, tmp_path, monkeypatch):
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / file))
    with pytest.raises(UsageError, match="certificates in SSL_CERT_FILE"):
        OpenAIPolicy(OpenAIOptions(base_url="http://localhost:1/v1", model="m"))


@pytest.mark.parametrize("address", ["ftp://me:secret@there", "http://1.2.3.999", "http://\N{SNOWMAN}.com"])
def test_invalid_proxy_is_reported_before_writing(address, tmp_path, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", address)
    config = EvalConfig(policy="openai", output_dir=tmp_path / "run", videos=0, report=False)
    with pytest.raises(UsageError, match=r"ALL_PROXY is not a valid proxy URL$"):
        run_evaluation(["2048"], config, OpenAIOptions(base_url="http://localhost:1/v1", model="m"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("host", ["1.2.3.999", "\N{SNOWMAN}.com", "\N{ARABIC-INDIC DIGIT ZERO}.com"])
def test_invalid_host(host):
    with pytest.raises(UsageError, match=f"base_url is not a valid URL: .*{host}"):
        OpenAIPolicy(OpenAIOptions(base_url=f"http://{host}/v1", model="m"))


def test_recorded_options():
    options = OpenAIOptions(base_url="http://me:pass@h:1/v1", model="m", extra_body='{"b": 1, "a": 2}', sample_seed=3)
    assert options.to_dict()["base_url"] == "http://h:1/v1"
    assert options.to_dict().keys() == asdict(options).keys()
    assert options.without_operational() == {
        "model": "m",
        "temperature": None,
        "top_p": None,
        "top_k": None,
        "max_tokens": None,
        "sample_seed": 3,
        "stop": [],
        "image_format": "png",
        "detail": "auto",
        "extra_body": {"a": 2, "b": 1},
    }


def test_missing_extra(tmp_path):
    code = "import sys; sys.modules['openai'] = None; from vlmgym.cli.main import main; main()"
    args = ["eval", "2048", "--policy", "openai", "--model", "m", "--base-url", "http://localhost:1/v1"]
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "error: the policy openai needs openai: run pip install -e '.[openai]' in the folder of vlmgym\n",
    )
    assert not list(tmp_path.iterdir())


def test_heavy_libraries_are_imported_lazily():
    code = (
        "import sys, vlmgym, vlmgym.cli.main; from vlmgym.policies import options_type; options_type('openai');"
        "print([name for name in ('openai', 'tenacity', 'anyio', 'httpx', 'httpx2', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
