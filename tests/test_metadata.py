"""Metadata of a run (difficulty, model, version), and its progress display in a terminal."""

import contextlib
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

import vlmgym
from tests.api_server import Answer, ApiServer, Request, well_behaved
from tests.playing import summarise
from vlmgym.cli.main import main
from vlmgym.evaluation import evaluate
from vlmgym.evaluation.curves import draw_curves

QUICK = ["--episodes", "2", "--max-turns", "3", "--workers", "0", "--videos", "0"]


def named(request: Request) -> Answer:
    answer = well_behaved(request)
    body = {**json.loads(answer.body), "model": "played-model-2026"}
    return dataclasses.replace(answer, body=json.dumps(body).encode())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two games on a server that names its model, and the output of the command."""
    folder = tmp_path_factory.mktemp("metadata") / "run"
    command = ["eval", "2048", "swap", *QUICK, "--policy", "openai", "--model", "asked-model"]
    command += ["--output-dir", str(folder)]
    with pytest.MonkeyPatch.context() as patch, ApiServer(named).running() as server:
        patch.setenv("COLUMNS", "100")
        patch.setattr("vlmgym.evaluation.curves.draw_curves", draw_curves)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            main([*command, "--base-url", server.url, "--reasoning", "4", "--config", "size=160"])
    return folder, printed.getvalue()


def test_the_record_has_difficulty_model_and_version(run):
    config = json.loads((run[0] / "run.json").read_text())
    overrides = {"2048-v0": {"size": 160}, "swap-v0": {"size": 160}}
    assert config["difficulty"] == {"perception": 3, "reasoning": 4, "overrides": overrides}
    assert config["policy"]["options"]["model"] == "asked-model"
    assert config["versions"]["vlmgym"] == vlmgym.__version__
    summary = json.loads((run[0] / "summary.json").read_text())
    assert summary["games"]["2048-v0"]["served_models"] == {"played-model-2026": 6}


def test_reports_show_difficulty_model_and_version(run):
    folder, printed = run
    version = f"vlmgym {vlmgym.__version__}"
    title = f"2048-v0, swap-v0 (perception 3, reasoning 4): openai asked-model, {version}"
    page = (folder / "report.html").read_text()
    assert f"<title>{title}</title>" in page
    assert '["difficulty",["perception 3, reasoning 4, size=160"]]' in page
    assert '["served model",["played-model-2026"]]' in page
    assert " ".join(printed.split()).startswith(title)
    assert re.search(r"difficulty( +│ perception 3, reasoning 4, size=160){2}", printed)
    assert re.search(r"served model +│ played-model-2026 +│ played-model-2026", printed)
    with Image.open(folder / "curves_2048.png") as curves:
        assert curves.info["Title"] == f"2048-v0, openai asked-model, perception 3, reasoning 4, size=160, {version}"


def test_a_missing_perception_counts_as_zero(run):
    game = vlmgym.make_game("2048")
    oracle = evaluate(game, "oracle", 1, max_turns=2, workers=0)[0]
    assert summarise([oracle]).perception_accuracy == 1.0
    reward = oracle.turns[1].reward.model_copy(update={"perception": 0.0, "perception_exact": 0.0})
    silent = oracle.turns[1].model_copy(update={"response": "<answer>up</answer>", "reward": reward})
    mixed = oracle.model_copy(update={"turns": (oracle.turns[0], silent)})
    assert summarise([mixed]).perception_accuracy == 0.5


def test_the_version_is_printed(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"vlmgym {vlmgym.__version__}\n"
