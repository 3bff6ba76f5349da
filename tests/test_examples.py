"""Examples that need only the core package run as described in their first lines."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api_server import ApiServer, well_behaved
from vlmgym.evaluation import evaluate
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
