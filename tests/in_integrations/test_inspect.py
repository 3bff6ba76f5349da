"""Games as Inspect tasks, with an OpenAI-compatible server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from inspect_ai import eval as inspect_eval
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log

from tests.api_server import Answer, ApiServer, Request, completion, policy, refusal, well_behaved
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.integrations.inspect import make_task

ROOT = Path(__file__).parents[2]
MODEL = "openai-api/local/tiny"
PAGE = (ROOT / "docs" / "integrations" / "inspect.md").read_text()


def respond_to_images(request: Request) -> Answer:
    """Respond with a move that depends only on the images."""
    (image,) = request.images
    return completion(f"<answer>{('up', 'right', 'down', 'left')[crc32(image['url'].encode()) % 4]}</answer>")


def command(server: ApiServer, folder: Path, *args: str) -> EvalLog:
    """Run `inspect eval` as a user does; return its log."""
    variables = {"LOCAL_BASE_URL": server.url, "LOCAL_API_KEY": "none", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [Path(sys.executable).parent / "inspect", "eval", *args, "--model", MODEL, "--log-dir", folder / "cli"],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = list_eval_logs(str(folder / "cli"))
    return read_eval_log(log)


def run(server: ApiServer, folder: Path, task: Any) -> EvalLog:
    options = {"model_args": {"api_key": "none"}, "model_base_url": server.url, "display": "none"}
    (log,) = inspect_eval(task, model=MODEL, log_dir=str(folder / "logs"), max_retries=0, **options)
    return log


def test_scores_equal_those_of_vlmgym_eval(tmp_path: Path) -> None:
    settings = ["-T", "episodes=3", "-T", "seed=5", "-T", "max_turns=4", "-T", "size=64"]
    with ApiServer(respond_to_images).running() as server:
        log = command(server, tmp_path, "vlmgym/2048", *settings)
        records = evaluate(make_game("2048", size=64), policy(server), 3, seed=5, max_turns=4, workers=0)
    scores = {sample.id: sample.scores["game_score"] for sample in log.samples}
    assert {key: score.value for key, score in scores.items()} == {
        f"2048-v0/{record.seed}": record.score for record in records
    }
    for record in records:
        outcomes = [turn["outcome"] for turn in scores[f"2048-v0/{record.seed}"].metadata["turns"]]
        assert outcomes == [turn.outcome.value for turn in record.turns]
    assert log.eval.task == "vlmgym/2048"


def test_failed_requests_are_not_scored(tmp_path: Path) -> None:
    with ApiServer(lambda request: refusal(400)).running() as server:
        log = run(server, tmp_path, make_task("2048", 1, max_turns=2, size=64))
    assert log.status == "error"
    assert log.results is None


def test_a_limit_keeps_the_score_until_then(tmp_path: Path) -> None:
    task = make_task("2048", 1, max_turns=50, size=64)
    task.token_limit = 250  # each of the server's responses counts as 107 tokens
    with ApiServer(respond_to_images).running() as server:
        log = run(server, tmp_path, task)
    (sample,) = log.samples
    assert sample.limit.type == "token"
    assert len(sample.scores["game_score"].metadata["turns"]) == len(server.requests) - 1 == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": "x"}, "^seed must be an integer of at least 0, got 'x'$"),
        ({"reward": {"ilegal": -1}}, "^reward: ilegal: "),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_task("2048", **settings)


def test_reward_config_is_read_from_the_command_line(tmp_path: Path) -> None:
    settings = ["-T", "episodes=1", "-T", "max_turns=2", "-T", "size=64", "-T", "reward={unparsable: -1.5}"]
    with ApiServer(lambda request: completion("none")).running() as server:
        log = command(server, tmp_path, "vlmgym/2048", *settings)
    assert [turn["reward"] for turn in log.samples[0].scores["game_score"].metadata["turns"]] == [-1.5, -1.5]


def test_the_example_and_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with ApiServer(well_behaved).running() as server:
        monkeypatch.setenv("LOCAL_BASE_URL", server.url)
        monkeypatch.setenv("LOCAL_API_KEY", "none")
        exec(code.replace("openai/gpt-5-mini", MODEL), {})
        log = command(server, tmp_path, "examples/inspect_tasks.py@small_2048", "-T", "episodes=1")
    assert log.eval.task == "small_2048"
    assert log.status == "success"
