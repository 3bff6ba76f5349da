"""vf-eval with games, and the configuration for prime-rl."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import verifiers.v1 as vf
from pydantic import ValidationError
from pydantic_config import cli
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

from tests.api_server import ApiServer, Behaviour, refusal, well_behaved
from vlmgym import Episode, make_dataset

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations" / "verifiers.md").read_text()
EXAMPLES = ROOT / "examples" / "verifiers"
SMALL = {"max_turns": 3, "size": 64}


def evaluate(
    folder: Path, behaviour: Behaviour = well_behaved, player: Any = None, **taskset: Any
) -> tuple[list[vf.Episode], ApiServer]:
    with ApiServer(behaviour).running() as server:
        config = EvalConfig(
            env={"taskset": {"id": "vlmgym-verifiers", "settings": SMALL, **taskset}, "player": player or {}},
            model="tiny",
            client={"base_url": server.url, "api_key_var": "NO_KEY"},
            num_rollouts=2,
            rich=None,
            output_dir=folder,
        )
        return asyncio.run(run_eval(config)), server


def test_vf_eval_runs_the_example_on_this_machine_only(tmp_path: Path) -> None:
    config = (EXAMPLES / "eval.toml").read_text()
    config = config.replace("max_turns = 20", "max_turns = 3").replace("size = 320", "size = 160")
    assert tomllib.loads(config)["client"]["base_url"] == "http://localhost:8000/v1"
    with ApiServer().running() as server:
        config = config.replace("http://localhost:8000/v1", server.url).replace("push = false", "")
        (tmp_path / "eval.toml").write_text(config)
        options = f"--model tiny --no-rich -n 4 --output-dir {tmp_path}".split()
        done = subprocess.run(
            [Path(sys.executable).parent / "vf-eval", "@", tmp_path / "eval.toml", *options],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PRIME_API_KEY": "key", "PATH": ""},  # without uv
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "PRIME_RUNS_MODE=disabled; running without a platform run" in done.stdout + done.stderr
    (traces,) = tmp_path.rglob("traces.jsonl")
    episodes = [json.loads(line) for line in traces.read_text().splitlines()]
    assert sorted(each["task"]["data"]["id"] for each in episodes) == [
        "2048-v0/0",
        "2048-v0/1",
        "swap-v0/0",
        "swap-v0/1",
    ]
    for each in episodes:
        (trace,) = each["traces"]
        assert trace["ok"]
        assert trace["agent"]["runtime"]["type"] == "subprocess"
        episode = Episode.restore(each["task"]["data"]["snapshot"])
        responses = [node["message"]["content"] for node in trace["nodes"] if node["sampled"]]
        assert trace["info"]["rewards"] == [episode.respond(response).total for response in responses]
        assert trace["rewards"]["game"]["score"] == sum(trace["info"]["rewards"])
    assert len(server.requests) == 12
    assert {len(request.body["messages"]) for request in server.requests} == {1}


def test_rollouts_of_a_task_share_their_state(tmp_path: Path) -> None:
    episodes, _ = evaluate(tmp_path, episodes=1, split="validation")
    first, second = (episode.traces[0] for episode in episodes)
    assert first.task.data.id == second.task.data.id == "2048-v0/1000000"
    assert first.messages == second.messages  # the server's responses depend only on the request
    assert len(first.branches) == SMALL["max_turns"]  # one training sample per turn


def test_a_chat_is_one_training_sample(tmp_path: Path) -> None:
    episodes, server = evaluate(tmp_path, episodes=1, settings={**SMALL, "chat": True, "history_images": 100})
    for episode in episodes:
        (branch,) = episode.traces[0].branches
        assert [message.role for message in branch.messages] == ["system", *["user", "assistant"] * SMALL["max_turns"]]
    assert sorted(len(request.images) for request in server.requests) == [1, 1, 2, 2, 3, 3]


def test_failed_requests_give_no_reward(tmp_path: Path) -> None:
    episodes, _ = evaluate(tmp_path, lambda request: refusal(500), episodes=1)
    for episode in episodes:
        assert not episode.ok
        assert episode.traces[0].rewards == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": {"ilegal": 1}}, "reward: ilegal: extra inputs are not permitted"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        vf.resolve_env_config({"taskset": {"id": "vlmgym-verifiers", "settings": settings}})


def test_every_game_is_checked() -> None:
    gymnasium.register("Random-v0", entry_point="tests.games.probe:Probe", kwargs={"flaw": "random"})
    settings = {**SMALL, "states": {"moves": [0, 2]}}
    config = {"id": "vlmgym-verifiers", "games": ["2048", "gym:Random-v0"], "settings": settings}
    with pytest.raises(ValidationError, match="Random-v0 is not deterministic"):
        vf.resolve_env_config({"taskset": config})


def test_tasks_are_the_rows_of_a_dataset() -> None:
    settings: dict[str, Any] = {
        **SMALL,
        "states": {"moves": [2, 9], "informative": True},
        "reward": {"unparsable": -1.0},
    }
    config = {
        "id": "vlmgym-verifiers",
        "games": ["2048", "scenes-statements"],
        "episodes": 3,
        "seed": 4,
        "split": "validation",
    }
    env = vf.load_environment(vf.resolve_env_config({"taskset": {**config, "settings": settings}}))
    rows = make_dataset(["2048", "scenes-statements"], 3, 4, "validation", **settings)
    assert [task.data.snapshot for task in env.taskset.load()] == [row["snapshot"] for row in rows]


@pytest.mark.parametrize("name", ["games", "n", "seed", "split"])
def test_settings_of_the_taskset_itself_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"must not contain {name}"):
        vf.resolve_env_config({"taskset": {"id": "vlmgym-verifiers", "settings": {name: 1}}})


def test_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with ApiServer().running() as server:
        exec(code.replace("http://localhost:8000/v1", server.url), {})
    assert "'end_reason': 'turn limit'" in capsys.readouterr().out


def play_with_prime_rl_settings(env: Any) -> None:
    (task,) = vf.load_environment(env).taskset.take(1)
    episode = Episode.restore(task.data.snapshot)
    assert episode.max_turns == 10
    assert episode.respond("").total == -1.0


def test_configuration_of_prime_rl_names_a_valid_environment() -> None:
    config = tomllib.loads((EXAMPLES / "prime_rl.toml").read_text())
    (source,) = config["orchestrator"]["train"]["source"]
    play_with_prime_rl_settings(vf.resolve_env_config(source["env"]))


def test_prime_rl_accepts_its_configuration() -> None:
    """Validate with prime-rl's own classes; docs/integrations/verifiers.md has the command."""
    rl = pytest.importorskip("prime_rl.configs.rl")
    config = cli(rl.RLConfig, args=["@", str(EXAMPLES / "prime_rl.toml")])
    assert config.trainer.model.name == "Qwen/Qwen3.5-4B"
    (source,) = config.orchestrator.train.source
    play_with_prime_rl_settings(source.env)
