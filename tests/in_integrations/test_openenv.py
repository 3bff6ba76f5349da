"""An OpenEnv server: concurrent sessions, validation by OpenEnv's own checks, and client errors."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn
from openenv import GenericEnvClient
from openenv.cli.__main__ import app as cli
from openenv.validation.graders.runtime.basic import (
    ObservationSchemaGrader,
    RewardWellFormedGrader,
    StateContractGrader,
)
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan, RuntimeReset
from typer.testing import CliRunner

from tests.api_server import ApiServer, well_behaved
from tests.in_integrations.test_conformance import pixels
from vlmgym import Episode
from vlmgym.integrations.openenv import make_app

EXAMPLE = Path(__file__).parents[2] / "examples" / "openenv"
SETTINGS: dict[str, Any] = {"max_turns": 4, "size": 160}


@contextmanager
def serve(app: Any) -> Iterator[str]:
    """Serve an app on a free port; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(make_app(["2048", "swap"], max_sessions=3, **SETTINGS)) as address:
        yield address


def test_sessions_are_concurrent_and_independent(url: str) -> None:
    together = Barrier(3, timeout=60)

    def play(game: str, seed: int) -> None:
        episode = Episode(game, seed, **SETTINGS)
        with GenericEnvClient(base_url=url).sync() as client:
            turn = client.reset(seed=seed, game=game)
            while not episode.done:
                assert {image["media_type"] for image in turn.observation["images"]} == {"image/png"}
                shown = [pixels(image["data"]) for image in turn.observation["images"]]
                assert len(shown) == 1
                assert np.array_equal(shown[0], episode.images[0])
                together.wait()
                response = episode.oracle()
                turn, scored = client.step({"response": response}), episode.respond(str(response))
                assert (turn.reward, turn.observation["outcome"]) == (scored.total, "played")
            assert turn.done
            assert turn.observation["score"] == episode.score
            state = client.state()
            assert (state["game"], state["seed"], state["step_count"]) == (episode.game.id, seed, episode.turn)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(play, ["2048", "2048", "swap"], [0, 1, 0]))


def test_too_many_sessions_are_an_error(url: str) -> None:
    clients = [GenericEnvClient(base_url=url).sync() for _ in range(4)]
    for client in clients[:3]:
        client.reset(seed=0)
    with pytest.raises(Exception, match="capacity"):
        clients[3].reset(seed=0)
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.step({"response": ""}), "reset first, in the same WebSocket session"),
        (lambda client: client.reset(game="chess"), "this server has no game 'chess', only 2048, swap"),
        (
            lambda client: client.reset(size=100),
            "reset takes seed, episode_id and game, got size: only the server sets the config",
        ),
        (lambda client: [client.reset(seed=0), *[client.step({"response": ""}) for _ in range(5)]], "has ended"),
    ],
)
def test_invalid_calls_raise_in_the_client(call: Callable[[Any], Any], message: str, url: str) -> None:
    with GenericEnvClient(base_url=url).sync() as client, pytest.raises(RuntimeError, match=message):
        call(client)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLE)
    return runpy.run_module("server.app")["app"]


def test_openenv_validates_the_example(example: Any) -> None:
    package = CliRunner().invoke(cli, ["validate", str(EXAMPLE), "--skip-build"])
    assert "PASS  static.manifest" in package.output
    assert package.exit_code == 0
    reset = RuntimeReset(episode_id="first", seed=0, options={"game": "2048"})
    responses = ["<answer>left</answer>", "<answer>down</answer>", "none"]
    plan = RuntimePlan(plan_schema_version="1", reset=reset, actions=[{"response": each} for each in responses])
    with serve(example) as address:
        running = CliRunner().invoke(cli, ["validate", "--url", address])
        assert running.exit_code == 0, running.output
        evidence = collect_runtime_evidence(address, plan, episode_timeout_s=60)
    assert [each.operation for each in evidence.exchanges].count("step") == len(responses)
    subject = SimpleNamespace(manifest=OpenEnvYamlParser().parse(EXAMPLE), runtime_evidence=evidence)
    for grader in (RewardWellFormedGrader(), ObservationSchemaGrader(), StateContractGrader()):
        assert grader.run(subject).status.value == "pass", grader.run(subject)


def test_the_container_has_what_the_server_needs() -> None:
    root, server = EXAMPLE.parents[1], EXAMPLE / "server"
    lines = (server / "Dockerfile").read_text().splitlines()
    copied = [path for line in lines if line.startswith("COPY ") for path in line.split()[1:-1]]
    assert all((root / path).exists() for path in copied)
    kept = {line[1:] for line in (server / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {*copied}


def test_the_example_plays_with_a_model(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serve(make_app(**SETTINGS)) as address, ApiServer(well_behaved).running() as model:
        command = ["play.py", "--url", address, "--base-url", model.url, "--model", "any"]
        monkeypatch.setattr(sys, "argv", command)
        runpy.run_path(str(EXAMPLE / "play.py"), run_name="__main__")
        assert len(model.requests) == SETTINGS["max_turns"]
    assert "turn limit" in capsys.readouterr().out
