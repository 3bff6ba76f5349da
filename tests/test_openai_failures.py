"""The policy `openai` with failing servers: retries, rate limits, errors, interrupted and resumed runs."""

import random
import signal
import socket
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.api_server import (
    GAME,
    GOOD,
    UP,
    Answer,
    ApiServer,
    as_json,
    completion,
    first,
    play,
    played,
    policy,
    refusal,
    well_behaved,
)
from tests.commands import BARE, process, wait_until
from vlmgym.errors import PolicyError
from vlmgym.evaluation import evaluate
from vlmgym.policies.openai import client
from vlmgym.policies.openai.client import MAX_WAIT, retry_after
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy
from vlmgym.runs.store import read_run

pytestmark = pytest.mark.usefixtures("quick_retries")


def empty(content, usage, finish_reason="stop"):
    """Make a completion without text and tokens."""
    message = {"role": "assistant", "content": content}
    return as_json({"choices": [{"message": message, "finish_reason": finish_reason}], "usage": usage})


FAULTS = {
    **{str(status): refusal(status) for status in (408, 429, 500)},
    "hangs": Answer(delay=30),
    "resets the connection": Answer(reset=True),
    "cut in the body": Answer(200, GOOD.body, GOOD.headers, cut=20),
    "slower than the timeout": Answer(200, b" " * 10**5 + GOOD.body, GOOD.headers, pause=0.1),
    "no choices": as_json({"choices": []}),
    "empty": empty("", {}),
    "null, without finish reason": empty(None, None, finish_reason=None),
    "null, at the length limit": empty(None, None, finish_reason="length"),
    "unknown content part": completion([{"type": "text", "text": UP}, {"type": "audio", "audio": {"id": "a"}}]),
    "content part without text": completion([{"type": "text"}]),
    "thinking is an object": completion([{"type": "thinking", "thinking": {"text": "hm"}}]),
    "finish reason error": completion(UP, "error"),
    "HTML": Answer(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
    "empty body": Answer(200, b"", {"Content-Type": "application/json"}),
    "truncated JSON": Answer(200, GOOD.body[:-5], GOOD.headers),
    "invalid UTF-8": Answer(200, GOOD.body.replace(b"up", b"\xff\xfe"), GOOD.headers),
    "not HTTP": Answer(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "empty response": Answer(raw=b""),
}
SLOW = ("hangs", "slower than the timeout")


@pytest.mark.parametrize("fault", FAULTS)
def test_failures_are_retried_and_never_scored(fault):
    (record,), server = play(lambda _: FAULTS[fault], retries=1, timeout=0.2 if fault in SLOW else 5.0)
    assert (record.status, record.score, record.turns) == ("error", None, ())
    assert record.end_reason.startswith("no response after 2 requests, last error: ")
    assert len(record.end_reason) < 400
    assert record.end_reason.isprintable()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"object": "error", "message": "the engine is dead"}, "the engine is dead"),
        ({"error": {"message": "overloaded", "code": 502}}, "overloaded"),
    ],
)
def test_message_of_an_error_with_status_200_is_kept(body, message):
    (record,), _ = play(lambda _: as_json(body), retries=0)
    assert (record.status, record.score) == ("error", None)
    assert message in record.end_reason


def test_missing_server_is_reported_at_once(run, tmp_path):
    with ApiServer().running() as server:
        pass
    options = ["--policy", "openai", "--model", "m", "--episodes", 3, "--max-turns", 100, "--output-dir", "o"]
    done = run("eval", "2048", *BARE, *options, "--base-url", server.url)
    assert done.code == 1
    assert f"cannot reach {server.url} (ConnectionRefusedError: " in done.err
    assert "0/300" in done.err
    assert "Traceback" not in done.err


def test_hosts_that_drop_packets_are_reported(monkeypatch):
    monkeypatch.setattr(client, "FIRST_CONNECT", 0.1)
    with socket.socket() as full:  # its queue of connections is full, so the kernel drops further ones
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        with socket.create_connection(full.getsockname()):
            openai = OpenAIPolicy(OpenAIOptions(base_url=url, model="m", timeout=60.0))
            with pytest.raises(PolicyError, match=rf"cannot reach {url} \(ConnectionTimeoutError"):
                evaluate(GAME, openai, 1, max_turns=1, workers=0)


DEAD_PROXY = "http://me:swordfish@127.0.0.1:9"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_loopback_is_reached_without_proxy(variable, monkeypatch):
    monkeypatch.setenv(variable, DEAD_PROXY)
    (record,), server = play(retries=0)
    assert record.score is not None
    openai = OpenAIPolicy(OpenAIOptions(base_url=server.url.replace("127.0.0.1", "localhost"), model="m"))
    with pytest.raises(PolicyError, match=r"cannot reach http://localhost") as raised:  # the server has ended
        evaluate(GAME, openai, 1, max_turns=1, workers=0)
    assert "proxy" not in str(raised.value)


def test_other_hosts_are_reached_through_the_proxy(monkeypatch):
    openai = OpenAIOptions(base_url="http://models.example/v1", model="m", retries=0)
    with ApiServer().running() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        (record,) = evaluate(GAME, OpenAIPolicy(openai), 1, max_turns=1, workers=0)
        assert record.score is not None
        assert proxy.requests[0].headers["host"] == "models.example"
        proxy.behaviour = lambda _: refusal(502, "no route")
        (record,) = evaluate(GAME, OpenAIPolicy(openai), 1, max_turns=1, workers=0)
        assert f"HTTP 502 through the proxy {proxy.url.removesuffix('/v1')}: no route" in record.end_reason
    monkeypatch.setenv("HTTP_PROXY", DEAD_PROXY)
    with pytest.raises(PolicyError, match=r"through the proxy http://127.0.0.1:9") as raised:
        evaluate(GAME, OpenAIPolicy(openai), 1, max_turns=1, workers=0)
    assert "swordfish" not in str(raised.value)
    monkeypatch.setenv("NO_PROXY", "example")
    with pytest.raises(PolicyError, match="cannot reach") as raised:
        evaluate(GAME, OpenAIPolicy(openai), 1, max_turns=1, workers=0)
    assert "proxy" not in str(raised.value)


MOVED = Answer(307, b"", {"Location": "https://example.org/"})


@pytest.mark.parametrize(
    ("number", "answer", "reason"),
    [
        (3, refusal(400, "the image is too large"), "rejected the request (HTTP 400: the image is too large)"),
        (0, refusal(403, "flagged"), "rejected the request (HTTP 403: flagged)"),
        (3, refusal(404), "HTTP 404"),  # after a first success, a 404 is temporary
        (3, MOVED, "HTTP 307"),
    ],
)
def test_rejected_request_ends_only_its_episode(number, answer, reason):
    records, server = play(first([GOOD] * number + [answer]), episodes=3, turns=2, concurrency=1)
    expected = [("turn limit", 2)] * 3
    expected[number // 2] = ("error", number % 2)
    assert [(record.status, len(record.turns)) for record in records] == expected
    lost = records[number // 2]
    assert lost.score is None
    assert reason in lost.end_reason
    assert len(server.requests) == 5 + number % 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal(404, "no model tiny"), r"unknown model or URL \(HTTP 404: no model tiny\)"),
        (refusal(401, "bad key"), r"rejects the API key \(HTTP 401: bad key\)"),
        (Answer(308, b"", {"Location": "https://example.org/v1"}), "redirects to https://example.org/v1"),
    ],
)
def test_wrong_key_model_or_url_ends_the_run(answer, message):
    with ApiServer(lambda _: answer).running() as server, pytest.raises(PolicyError, match=message):
        evaluate(GAME, policy(server), 5, max_turns=2, workers=0)


def test_retry_after_delays_all_requests():
    with ApiServer(first([refusal(429, Retry_After="0.6")])).running() as server:
        began = time.monotonic()
        evaluate(GAME, policy(server, max_requests=2), 8, max_turns=1, workers=0)
    late = [request.arrived - began for request in server.requests]
    assert len(late) == 9
    assert sum(seconds < 0.6 for seconds in late) <= 3  # those that began before the first response


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (" 1.5 ", 1.5), ("-3", 0), ("1e99", MAX_WAIT), ("nan", None), ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_header(value, seconds):
    assert retry_after({"Retry-After": value}) == seconds


def test_concurrency_drops_on_429_and_recovers():
    busy = 4  # number of concurrent requests that the server accepts at first

    def behaviour(request):
        crowded = request.at_once > busy and request.number < 200
        answer = refusal(429) if crowded else completion(UP)
        # long delays make the first requests overlap, even on a slow machine
        return replace(answer, delay=0.3 if request.number < 40 else 0.0 if crowded else 0.01)

    with ApiServer(behaviour).running() as server:
        openai = policy(server, max_requests=32, retries=20)
        records = evaluate(GAME, openai, 32, max_turns=25, workers=0)
    assert {record.status for record in records} == {"turn limit"}
    at_once = [request.at_once for request in server.requests]
    assert max(at_once[:40]) > 2 * busy
    assert np.median(at_once[100:200]) <= 2 * busy
    assert len(server.requests) < 1.3 * 32 * 25
    assert openai._client.limit.width >= 24


def test_failures_do_not_change_a_run():
    rng = random.Random(0)
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


def test_ctrl_c_while_waiting_for_the_server(tmp_path):
    def behaviour(request):
        return well_behaved(request) if request.number < 2 else Answer(delay=60)

    with ApiServer(behaviour).running() as server:
        options = ["--policy", "openai", "--model", "tiny", "--base-url", server.url, "--output-dir", "run"]
        running = process("eval", "2048", *BARE, *options, "--episodes", 1, cwd=tmp_path, stderr=subprocess.PIPE)
        wait_until(lambda: len(server.requests) == 3)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=30)
    assert running.returncode == 130, stderr
    assert "Traceback" not in stderr
    (record,) = read_run(tmp_path / "run").episodes
    assert (record.status, len(record.turns)) == ("stopped", 2)
