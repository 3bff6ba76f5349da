"""Records that were edited by hand raise errors that name the line and the turn."""

import re
import shutil

import pytest

from tests.playing import edited
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.errors import UsageError
from vlmgym.evaluation import open_run
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.video import write_stored_video
from vlmgym.pages.episode import episode_json
from vlmgym.pages.report import ReportConfig, report

OPTIONS = {"episodes": 2, "max_turns": 3, "workers": 0, "videos": 0, "report": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played") / "run"
    run_evaluation(["2048"], EvalConfig(policy="random-legal", output_dir=folder, **OPTIONS))
    return folder


@pytest.fixture
def edit(run, tmp_path):
    """Copy the run and change its last record."""

    def edit(change):
        folder = shutil.copytree(run, tmp_path / "edited")
        with edited(folder / "episodes.jsonl") as records:
            change(records[-1])
        return folder

    return edit


EDITS = [
    (lambda r: r["turns"][2].update(action=7), r"turn 3: an action must be in Discrete\(4\), got 7$"),
    (lambda r: r["turns"][1].update(state={"board": [[3]]}), "turn 2: invalid state of 2048: "),
    (lambda r: r.update(final_state=5), "final_state: invalid state of 2048: "),
    (lambda r: r["game"]["config"].update(size=-4), "invalid configuration of 2048-v0: size: "),
]


@pytest.mark.parametrize(("change", "message"), EDITS)
def test_invalid_states_and_actions_are_located(edit, change, message, tmp_path):
    folder = edit(change)
    stored = open_run(folder).episodes[-1]
    place = rf"^line 2 of \S*episodes\.jsonl, {message}"
    with pytest.raises(UsageError, match=place):
        episode_json(stored, with_images=False)
    with pytest.raises(UsageError, match=place):
        write_stored_video(tmp_path / "video.mp4", stored)
    with pytest.raises(UsageError, match=place):
        report(ReportConfig(run=folder, workers=0))


CONTRADICTIONS = [
    (lambda r: r.update(status="error"), "an episode whose status is 'error' cannot have a score"),
    (lambda r: r.update(score=None), "an episode whose status is 'turn limit' must have a score"),
    (lambda r: r.update(score=r["score"] + 1), r"score is .*, but the game's rewards sum to .*"),
]


@pytest.mark.parametrize(("change", "message"), CONTRADICTIONS)
def test_contradictions_are_rejected(edit, change, message, capsys):
    folder = edit(change)
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(folder), "--workers", "0"])
    assert re.fullmatch(rf"error: line 2 of \S*episodes\.jsonl cannot be read: {message}\n", capsys.readouterr().err)
