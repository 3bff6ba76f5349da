"""Examples that need only the core package run as described in their first lines."""

from __future__ import annotations

import json
import os
import re
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


@pytest.mark.slow
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
    options = ["--folder", str(tmp_path / "tasks"), "--games", "scenes-questions", "--rows", "2", "--size", "160"]
    monkeypatch.setattr(sys, "argv", ["export_to_lmms_eval.py", *options])
    runpy.run_path(str(EXAMPLES / "export_to_lmms_eval.py"), run_name="__main__")
    assert (tmp_path / "tasks" / "vlmgym_scenes_questions.yaml").exists()


@pytest.mark.slow
def test_the_saved_outputs_of_the_notebook_are_those_of_a_run(tmp_path: Path) -> None:
    """To save them again: `jupyter nbconvert --to notebook --execute --inplace examples/quick_start.ipynb`."""
    for package in ("ipykernel", "nbclient"):
        pytest.importorskip(package)
    script = tmp_path / "run.py"  # in another process, whose warnings are not errors
    script.write_text(
        "import sys, nbformat, nbclient\n"
        "notebook = nbformat.read(sys.argv[1], 4)\n"
        "nbclient.NotebookClient(notebook).execute()\n"
        "nbformat.write(notebook, sys.argv[2])\n"
    )
    saved, ran = EXAMPLES / "quick_start.ipynb", tmp_path / "ran.ipynb"
    command = [sys.executable, str(script), str(saved), str(ran)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert outputs(saved) == outputs(ran)
    assert all(map(all, outputs(saved)))


def outputs(notebook: Path) -> list[list[str]]:
    """Return the outputs of each cell, without images, whose encoding may differ between machines."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    return [
        [
            re.sub(
                r"base64,[^\"]+",
                "",
                str(output.get("text") or output["data"].get("text/html") or output["data"]["text/plain"]),
            )
            for output in cell["outputs"]
        ]
        for cell in cells
    ]
