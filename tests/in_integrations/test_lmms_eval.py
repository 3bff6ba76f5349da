"""lmms-eval reads the tasks and scores responses as vlmgym does; docs/integrations/lmms_eval.md has the command."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api_server import Answer, ApiServer, Request, completion
from tests.in_integrations.test_conformance import pixels
from vlmgym import make_dataset, score
from vlmgym.errors import UsageError
from vlmgym.integrations.lmms_eval import write_tasks

EXAMPLE = Path(__file__).parents[2] / "examples" / "export_to_lmms_eval.py"
GAMES = ["geospot", "scenes-statements", "scenes-questions", "caption"]


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tasks"
    options = ["--folder", str(folder), "--games", *GAMES, "--rows", "2", "--size", "160"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return folder


def test_lmms_eval_evaluates_the_example(tasks: Path, tmp_path: Path) -> None:
    """Requests for the first row of scenes-questions always fail, so this row is excluded from the mean score."""
    rows = make_dataset(GAMES, 2 * len(GAMES), split="validation", size=160)
    by_request = {(row["prompt"][0]["content"], *(image.tobytes() for image in row["images"])): row for row in rows}
    answered: dict[str, list[float]] = {game: [] for game in GAMES}
    failing = next(row for row in rows if row["game"] == "scenes-questions-v0")

    def answer(request: Request) -> Answer:
        (text,) = request.texts
        seen = (text, *(pixels(image["url"]).tobytes() for image in request.images))
        row = by_request[seen]
        if row is failing:
            return Answer(status=500)
        response = f"I looked.\n\n<answer>{row['answer']}</answer>" if row["seed"] % 2 else "I cannot tell."
        answered[row["game"].removesuffix("-v0")].append(score(row["snapshot"], response).game)
        return completion(response)

    with ApiServer(answer).running() as server:
        model = f"model=any,base_url={server.url},max_retries=1,num_concurrent=1,timeout=60"
        options = ["--model", "openai", "--model_args", model, "--tasks", "vlmgym_*", "--include_path", str(tasks)]
        command = [sys.executable, "-m", "lmms_eval", *options, "--batch_size", "1", "--output_path", str(tmp_path)]
        keys = {"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
        done = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (written,) = tmp_path.rglob("*results.json")
    results: dict[str, Any] = json.loads(written.read_text())["results"]
    for game, scores in answered.items():
        reported = results[f"vlmgym_{game.replace('-', '_')}"]
        assert len(scores) == (1 if game == "scenes-questions" else 2)
        assert reported["score,none"] == pytest.approx(np.mean(scores))
        assert reported["failed,none"] == (0.5 if game == "scenes-questions" else 0.0)
    assert [results["vlmgym_scenes_statements"][f"{each},none"] for each in ("played", "illegal", "unparsable")] == [
        0.5,
        0.0,
        0.5,
    ]
    assert np.mean(answered["scenes-statements"]) == 0.5


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    with pytest.raises(UsageError, match="is not empty: choose a new folder"):
        write_tasks(tmp_path, make_dataset("2048", 1, size=64))


def test_chats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without chat"):
        write_tasks(tmp_path / "tasks", make_dataset("2048", 1, size=64, chat=True))
