"""Tiny checkpoints and the real vLLM server that other tests ask."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest

from tests.serving import CONTEXT, Server, run_python
from vlmgym.sandbox.registry import make_game
from vlmgym.sandbox.rendering.encode import encode_png

pytestmark = pytest.mark.slow

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(server: Server, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of a response: to a GET, or to a POST of a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.base_url + path, data, {"Content-Type": "application/json"})
    try:
        with DIRECT.open(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def chat(server: Server, seed: int, prompt: str | None = None) -> tuple[int, Any]:
    """The server's greedy response to a game's first position."""
    game = make_game("2048", size=256)
    state = game.start(np.random.default_rng(seed))
    url = "data:image/png;base64," + base64.b64encode(encode_png(game.images(state)[0])).decode()
    image = {"type": "image_url", "image_url": {"url": url}}
    text = {"type": "text", "text": game.prompt(state) if prompt is None else prompt}
    body = {"model": server.model, "messages": [{"role": "user", "content": [image, text]}]}
    settings = {"temperature": 0, "max_tokens": 16, "ignore_eos": True, "logprobs": True}
    return ask(server, "/chat/completions", body | settings)


def log_probabilities(answer: Any) -> tuple[float, ...]:
    return tuple(token["logprob"] for token in answer["choices"][0]["logprobs"]["content"])


def test_server_answers_to_an_image(vllm_server: Server) -> None:
    status, answer = chat(vllm_server, seed=0)
    assert status == 200, answer
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["usage"]["prompt_tokens"] > 64, "the image has 64 tokens"
    again, *others = [chat(vllm_server, seed)[1] for seed in (0, 1, 2)]
    assert again["choices"][0]["message"]["content"] == answer["choices"][0]["message"]["content"]
    # An untrained model may say the same to every image, but it is not as sure of it.
    assert len({log_probabilities(one) for one in [answer, *others]}) == 3, "the response does not depend on the image"


def test_server_lists_its_model(vllm_server: Server) -> None:
    status, listed = ask(vllm_server, "/models")
    assert status == 200
    assert [model["id"] for model in listed["data"]] == [vllm_server.model]


def test_server_refuses_an_overlong_prompt(vllm_server: Server) -> None:
    status, answer = chat(vllm_server, seed=0, prompt="up " * CONTEXT)
    assert status == 400
    assert str(CONTEXT) in answer["error"]["message"]
    assert chat(vllm_server, seed=0)[0] == 200


@pytest.fixture(scope="module")
def tiny_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What there is to know about a checkpoint of each kind, and about those that cannot be made."""
    found: dict[str, Any] = json.loads(
        run_python("-m", "tests.tiny_checkpoints", str(tmp_path_factory.mktemp("kinds")))
    )
    return found


@pytest.mark.parametrize(
    ("kind", "architecture", "image_tokens"),
    [("qwen2_vl", "Qwen2VL", 25), ("qwen2_5_vl", "Qwen2_5_VL", 25), ("qwen3_vl", "Qwen3VL", 16)],
)
def test_tiny_checkpoint(tiny_checkpoints: dict[str, Any], kind: str, architecture: str, image_tokens: int) -> None:
    facts = tiny_checkpoints["kinds"][kind]
    assert facts["class"] == f"{architecture}ForConditionalGeneration"
    assert facts["parameters"] < 500_000
    assert facts["image tokens"] == image_tokens  # of an image of 128 x 128
    assert len(facts["generated"]) == 8
    assert facts["response again"] == facts["response"]
    assert facts["response tokens"] < len(facts["response"]) / 2, "the tokenizer does not know the words of the games"
    files = facts["files"]
    assert files["same seed"] == files["first"]
    assert {name for name in files["first"] if files["first"][name] != files["other seed"][name]} == {
        "model.safetensors"
    }


def test_checkpoint_that_cannot_be_made(tiny_checkpoints: dict[str, Any]) -> None:
    hidden, vocabulary, folder = tiny_checkpoints["refusals"]
    assert hidden == "hidden must be a multiple of 32, got 50"
    assert vocabulary == "vocabulary must be at least 270, got 100"
    assert "cannot create the folder" in folder
    assert "never" not in tiny_checkpoints["folders"]
