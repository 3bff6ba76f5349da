"""`vlmgym bench-model` against a local server, a misbehaving server, and a real vLLM server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api_server import Answer, ApiServer, Behaviour, Request, completion, refusal
from tests.serving import Server
from vlmgym.cli.bench_model import BenchModelConfig, Speed, bench_model
from vlmgym.cli.main import main
from vlmgym.policies.openai.client import StreamTiming
from vlmgym.policies.openai.policy import OpenAIOptions

DELAY, PAUSE = 0.1, 0.05
"""Seconds of delay before the first chunk, and of pause after each chunk."""


def streamed(*parts: Any, usage: bool = True) -> Answer:
    """Make a streamed response with a pause after each chunk."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    if usage:
        chunks.append({"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}})
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    lines = [f"data: {json.dumps(head | chunk)}\n\n".encode() for chunk in chunks]
    lines[0] += b": ".ljust(1024 - len(lines[0]) - 2, b".") + b"\n\n"  # a comment that fills the first chunk of 1 KiB
    body = b"".join(lines) + b"data: [DONE]\n\n"
    return Answer(200, body, {"Content-Type": "text/event-stream"}, delay=DELAY, pause=PAUSE)


def server_options(url: str, model: str = "tiny", **options: Any) -> OpenAIOptions:
    return OpenAIOptions(base_url=url, model=model, temperature=0.0, **options)


def config(server: OpenAIOptions, **options: Any) -> BenchModelConfig:
    return BenchModelConfig(server=server, **{"size": 64, "seconds": 0.8, "concurrency": (1, 4), **options})


def test_requests_are_measured_printed_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.json"
    with ApiServer(lambda _: streamed("<answer>", "up</answer>")).running() as server:
        speeds = bench_model(config(server_options(server.url, extra_body='{"min_p": 0.1}'), output=out))
    for speed in speeds:
        assert DELAY <= speed.first_token.median < speed.latency.median
        assert speed.latency.median >= DELAY + PAUSE
        assert 0 < speed.requests_per_second <= speed.concurrency / (DELAY + PAUSE)
        assert (speed.prompt_tokens, speed.completion_tokens) == (90, 10)
    warm_ups = 1 + 4
    assert sum(speed.requests for speed in speeds) == len(server.requests) - warm_ups
    assert server.max_at_once == 4
    urls = [image["url"] for request in server.requests for image in request.images]
    assert len(set(urls)) == len(urls), "an image was sent twice, which a server may remember"
    body = server.requests[0].body
    assert body["min_p"] == 0.1
    assert body["temperature"] == 0
    assert body["stream_options"] == {"include_usage": True}
    saved = json.loads(out.read_text())
    assert [level["concurrency"] for level in saved["speeds"]] == [1, 4]
    assert saved["game"]["id"] == "2048-v0"
    assert "90 tokens in, 10 out" in capsys.readouterr().out


def test_rates_count_requests_by_their_share_of_the_time() -> None:
    """In four seconds, three requests finish; the fourth, from second 2 to second 6, counts as half a request."""
    times = [(0, 1, 2), (2, 3, 4), (0, 2, 2), (2, 3, 6)]
    streamed = [StreamTiming(*each, prompt_tokens=90, completion_tokens=12) for each in times]
    speed = Speed.of(2, streamed, 0.0, 4.0)
    assert speed.requests_per_second == 3.5 / 4
    assert speed.tokens_per_second == (3 * 12 + 12 / 3) / 4, "tokens arrive between the first and the last"
    assert (speed.first_token.median, speed.latency.median) == (1.0, 2.0)


def failing(answer: Answer, after: int) -> Behaviour:
    def behave(request: Request) -> Answer:
        return answer if request.number >= after else streamed("up", "down")

    return behave


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal(400, "no such field"), "the server rejected the request (HTTP 400: no such field)"),
        (completion("not a stream"), "does not stream"),
        (streamed("up", usage=False), "token counts"),
        (Answer(200, b"", delay=30), "no response: timed out after 0.5 s"),
    ],
)
def test_failed_request_is_reported_in_one_sentence(
    answer: Answer, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    timeout = "0.5" if answer.delay else "30"
    with ApiServer(failing(answer, after=3)).running() as server, pytest.raises(SystemExit) as ended:
        main(["bench-model", "--base-url", server.url, "--model", "tiny", "--size", "64", "--concurrency", "2",
              "--seconds", "5", "--timeout", timeout])  # fmt: skip
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert len(server.requests) <= 5, "a request was sent again, or others went on"


@pytest.mark.slow
def test_real_server(vllm_server: Server) -> None:
    exact: dict[str, Any] = {"max_tokens": 12, "extra_body": '{"ignore_eos": true}'}
    for speed in bench_model(config(server_options(vllm_server.base_url, vllm_server.model, **exact), size=96)):
        assert speed.completion_tokens == 12
        assert speed.prompt_tokens > 200
        assert speed.first_token.mean < speed.latency.mean


def test_one_prompt_is_sent_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    with ApiServer(lambda _: streamed("one ", "two")).running() as server:
        (speed,) = bench_model(config(server_options(server.url), prompt="Count to two.", runs=3))
    assert len(server.requests) == 1 + 3, "a warm-up and the runs"
    assert (speed.requests, speed.concurrency) == (3, 1)
    assert "\N{PLUS-MINUS SIGN}" in capsys.readouterr().out
