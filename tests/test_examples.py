"""Examples that need only the core package run as described in their first lines."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api_server import ApiServer, first, refusal, well_behaved
from tests.commands import BARE
from vlmgym.evaluation import evaluate, read_run
from vlmgym.sandbox.core.reward import Outcome

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_a_policy_with_memory_does_not_repeat_rejected_moves() -> None:
    (episode,) = evaluate("2048", f"{EXAMPLES / 'policy_with_memory.py'}:play", 1, max_turns=80, workers=0)
    turns = episode.turns
    refused = [turn for turn in turns if turn.outcome is Outcome.ILLEGAL]
    assert refused
    assert all(
        one.state != other.state or one.action != other.action
        for one in refused
        for other in turns
        if one.turn < other.turn
    )


def test_a_model_behind_an_api_is_compared_with_random(run: Any) -> None:
    options = ["--episodes", "2", "--turns", "4", "--model", "tiny"]
    with ApiServer(well_behaved).running() as server:
        done = run(*options, "--base-url", server.url, script=EXAMPLES / "evaluate_api_model.py")
    assert done.code == 0, done.err
    assert [line.partition(":")[0] for line in done.out.splitlines()] == ["random", "tiny"]


def test_the_client_of_openai_is_a_custom_policy(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="pip install openai")

    def evaluation(server: ApiServer, folder: str) -> str:
        """Run in another process, because the client never closes its connections."""
        policy = f"{EXAMPLES / 'openai_policy.py'}:custom_policy"
        command = [sys.executable, "-m", "vlmgym", "eval", "2048", *BARE, "--policy", policy, "--episodes", "2"]
        command += ["--max-turns", "3", "--budget-tokens", "1000000", "--output-dir", folder]
        variables = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-TheSecretOfThisTest", "MODEL": "tiny"}
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr
        return done.stderr

    with ApiServer(first([refusal(503)])).running() as server:
        evaluation(server, "run")
        sent = len(server.requests)
        server.behaviour = lambda request: refusal(401, f"wrong key: {request.headers['authorization']}")
        message = evaluation(server, "failed")
    turns = [turn for episode in read_run(tmp_path / "run").episodes for turn in episode.turns]
    details = {(turn.model, turn.prompt_tokens, turn.completion_tokens, turn.finish_reason) for turn in turns}
    assert (len(turns), details) == (6, {("tiny", 100, 7, "stop")})
    assert sent == 7, "a request to a busy server is not sent again"
    assert {len(request.images) for request in server.requests} == {1}
    assert "raised AuthenticationError: " in message
    assert "wrong key: Bearer [redacted]" in message


def test_tasks_are_written_for_lmms_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--folder", str(tmp_path / "tasks"), "--games", "vqa", "--rows", "2", "--size", "160"]
    monkeypatch.setattr(sys, "argv", ["export_to_lmms_eval.py", *options])
    runpy.run_path(str(EXAMPLES / "export_to_lmms_eval.py"), run_name="__main__")
    assert (tmp_path / "tasks" / "vlmgym_vqa.yaml").exists()


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((EXAMPLES / "quick_start.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(cells))
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(script))
    assert len(names["scores"]["random"]) == 8
    assert all("outputs" in cell and not cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")
