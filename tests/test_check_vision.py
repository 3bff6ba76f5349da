"""`vlmgym check-vision` against a server that reads digits, and against faults on the way to it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from benchmarks.faulty_path import INJECTED, images_of, messages_of
from tests.api_server import Answer, ApiServer, Behaviour, Request, as_json, completion, refusal
from tests.commands import Done
from tests.sighted import Model, Turns
from vlmgym.evaluation.vision import FAULTS, GREY, Finding, check_vision
from vlmgym.policies import make_policy
from vlmgym.policies.base import ModelPolicy
from vlmgym.policies.openai.policy import OpenAIOptions, OpenAIPolicy
from vlmgym.sandbox.games.canary import Canary


def mostly_slow(values: Iterable[Any]) -> list[Any]:
    """Mark all values but every fourth as slow: a check takes a second."""
    return [pytest.param(value, marks=pytest.mark.slow if n % 4 else ()) for n, value in enumerate(values)]


@pytest.fixture(scope="module", autouse=True)
def draw_once() -> Iterator[None]:
    """Draw each image once: all checks with the same seed show the same ones."""
    draw = Canary.images
    drawn = cache(lambda config, state: draw(Canary(config), state))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Canary, "images", lambda game, state: drawn(game.config, state))
        yield


def check(model: Behaviour, seed: int = 0) -> tuple[list[Finding], int]:
    with ApiServer(model).running() as server:
        policy = OpenAIPolicy(OpenAIOptions(base_url=server.url, model="tiny", temperature=0.0, retries=0))
        return check_vision(policy, seed), len(server.requests)


def check_function(function: Any) -> list[Finding]:
    policy = make_policy(function)
    assert isinstance(policy, ModelPolicy)
    return check_vision(policy)


def faults(findings: list[Finding]) -> set[str]:
    return {finding.fault for finding in findings if finding.verdict == "wrong"}


@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_healthy_server_passes(seed: int) -> None:
    findings, requests = check(Model(), seed)
    assert {finding.verdict for finding in findings} == {"right"}, findings
    assert requests <= 85


@pytest.mark.parametrize("fault", mostly_slow(INJECTED))
def test_faults_are_named(fault: str) -> None:
    findings, _ = check(Model(fault, logprobs=True))
    assert faults(findings) == {fault}, findings


HABITS: dict[str, Callable[[Turns], Turns]] = {
    "first image": lambda turns: [turn[:1] for turn in turns],
    "last image": lambda turns: [turn[-1:] for turn in turns],
    "current turn": lambda turns: [turns[-1]] * len(turns),
    "first turn": lambda turns: [turns[0]] * len(turns),
    "turn before": lambda turns: [turns[0], *turns[:-1]],
}


@pytest.mark.parametrize("logprobs", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("habit", mostly_slow(HABITS))
def test_models_that_look_at_other_images_are_not_faults(habit: str, logprobs: bool) -> None:
    findings, _ = check(Model(looks_at=HABITS[habit], logprobs=logprobs))
    assert faults(findings) == set()
    suspected = {finding.fault for finding in findings if finding.verdict == "unclear"}
    assert suspected == {""} if logprobs else suspected > {""} or "" not in suspected


@pytest.mark.parametrize(("model", "count"), [(Model(), 20), (Model(reads=False), 0)])
def test_servers_that_count_only_texts_are_not_blamed(model: Model, count: int) -> None:
    def counting_texts(request: Request) -> Answer:
        body = json.loads(model(request).body)
        body["usage"]["prompt_tokens"] = count or len(json.dumps([part for _, part in messages_of(request.body)]))
        return as_json(body)

    assert faults(check(counting_texts)[0]) == set()


def test_image_sizes_that_are_rejected_are_a_fault() -> None:
    model = Model()

    def some_sizes(request: Request) -> Answer:
        images = images_of(request.body)
        if images and images[0].shape[0] not in (256, 512, 1024):
            return refusal(400, "images must have 256, 512 or 1024 pixels")
        answer = model(request)
        if images and images[0].shape[0] > 256:  # digits are not read, so that those in small images are asked for
            return replace(answer, body=re.sub(rb"<answer>.", b"<answer>x", answer.body))
        return answer

    findings, _ = check(some_sizes)
    assert faults(findings) == {"rejected"}, findings
    assert findings[-1].probe == GREY.name, "later probes still run"


def test_models_with_some_errors_cause_no_alarm() -> None:
    model, rng = Model(), random.Random(0)

    def sometimes_wrong(request: Request) -> Answer:
        return completion(f"<answer>{rng.randrange(10)}</answer>") if rng.random() < 0.1 else model(request)

    assert faults(check(sometimes_wrong)[0]) == set()


def test_answers_without_images_are_a_leak() -> None:
    def look_up(images: Any, prompts: Any) -> list[str]:
        states = [prompt.game.from_json(prompt.snapshot.state) for prompt in prompts]
        return [f"<answer>{prompt.game.best_action(state)}</answer>" for prompt, state in zip(prompts, states)]

    assert faults(check_function(look_up)) == {"leak"}


@pytest.mark.parametrize(
    ("model", "verdict", "evidence"),
    [
        (Model(reads=False), "unclear", "the response is always the same"),
        (Model(reads=False, logprobs=True), "unclear", "log-probabilities depend on the images"),
        (Model("grey"), "unclear", "the response is always the same"),
        (Model("grey", logprobs=True), "wrong", "log-probabilities are the same for different images"),
        (Model("dropped"), "unclear", "images have no tokens, or they are not counted"),
        (Model("dropped", logprobs=True), "wrong", "log-probabilities are the same for different images"),
    ],
)
def test_weak_models_are_told_apart_from_lost_images(model: Behaviour, verdict: str, evidence: str) -> None:
    (finding,), _ = check(model)
    assert finding.verdict == verdict
    assert evidence in finding.evidence


def test_command_prints_what_it_found(run: Callable[..., Done]) -> None:
    def checked(model: Model) -> tuple[int, str]:
        with ApiServer(model).running() as server:
            done = run("check-vision", "--base-url", server.url, "--model", "tiny")
        return done.code, done.out

    code, text = checked(Model())
    assert code == 0
    assert text.startswith("ok      8/8   one image at a time\n")
    assert text.endswith("the right images reach the model\n")
    code, text = checked(Model("reversed"))
    assert code == 1
    assert f"fault: {FAULTS['reversed'].meaning}" in text
    code, text = checked(Model(reads=False))
    assert code == 1
    assert "unclear" in text
