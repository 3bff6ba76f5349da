"""Opening somebody else's run or snapshot opens no data that it names, unless the user names it, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.colours import write_rows
from tests.commands import Done
from tests.web_server import serving
from vlmgym import Episode, UsageError, score
from vlmgym.runs import record

PLAY = ["--policy", "oracle", "--episodes", "2", "--workers", "0", "--videos", "0", "--size", "64"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [{"question": f"What is {n}?", "answer": f"{n}"} for n in range(3)]
    return Path(write_rows(tmp_path, *rows, name="table.jsonl"))


@pytest.fixture
def played(table: Path, tmp_path: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run over the table, opened by a process that has not been given the table."""
    out = tmp_path / "run"
    done = run("eval", "vqa", *PLAY, "--config", f"data={table}", "--output-dir", out)
    assert done.code == 0, done
    monkeypatch.setattr(record, "_allowed_data", set())
    return out


def commands(run: Path) -> dict[str, list[object]]:
    return {
        "verify": ["verify", run, "--workers", "1"],
        "report": ["report", run, "--workers", "0"],
        "export": ["export", run, "--format", "hf", "--output-dir", run.with_name("export"), "--workers", "0"],
        "compare": ["compare", run, run.with_name("other"), "--workers", "0"],
    }


@pytest.mark.parametrize("name", commands(Path("run")))
def test_commands_open_only_data_that_is_named(played: Path, table: Path, run: Callable[..., Done], name: str) -> None:
    shutil.copytree(played, played.with_name("other"))
    command = commands(played)[name]
    done = run(*command)
    assert (done.code, f"the record names the data {str(table)!r}" in done.err) == (2, True), done
    assert run(*command, "--data", "other.jsonl").code == 2
    assert run(*command, "--data", table).code == 0


@pytest.mark.parametrize("name", commands(Path("run")))
def test_commands_fetch_no_url_of_a_record(played: Path, table: Path, run: Callable[..., Done], name: str) -> None:
    requests: list[str] = []
    with serving(lambda handler: requests.append(handler.path)) as url:
        for file in ("run.json", "episodes.jsonl"):
            path = played / file
            path.write_text(path.read_text().replace(str(table), f"{url}/table.jsonl"))
        shutil.copytree(played, played.with_name("other"))
        done = run(*commands(played)[name])
    assert (done.code, "is opened only if you name it again" in done.err) == (2, True), done
    assert not requests


def test_snapshots_open_only_data_that_is_named(table: Path) -> None:
    episode = Episode("vqa", 0, data=str(table))
    snapshot = episode.snapshot()
    assert score(snapshot, f"<answer>{episode.answer()}</answer>").total == 1  # made in this process
    program = (
        "import sys, vlmgym\n"
        "try: vlmgym.score(sys.argv[1], '')\n"
        "except vlmgym.UsageError as error: print(error)\n"
        "print(vlmgym.Episode.restore(sys.argv[1], data=sys.argv[2]).game.id)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, snapshot, str(table)], capture_output=True, text=True, check=True
    )
    refused, restored = done.stdout.splitlines()
    assert refused.startswith(f"the record names the data {str(table)!r}")
    assert restored == "vqa-v0"


def test_records_name_files_in_options_of_environments() -> None:
    config = {"env": "Ant-v5", "options": ["xml_file=/etc/hosts", "gravity=9.8", "xml_file=ant.xml", "map_name=4x4"]}
    assert list(record.recorded_data(config)) == ["xml_file=/etc/hosts", "xml_file=ant.xml"]
    with pytest.raises(UsageError, match="xml_file=/etc/hosts"):
        record.check_data(config)


def test_pipes_in_a_run_are_rejected(played: Path, run: Callable[..., Done]) -> None:
    (played / "summary.json").unlink()
    os.mkfifo(played / "summary.json")
    done = run("verify", played)
    assert (done.code, "summary.json must be an ordinary file" in done.err) == (2, True), done


def test_workers_open_the_data_of_their_own_run(table: Path, tmp_path: Path, run: Callable[..., Done]) -> None:
    done = run("eval", "vqa", *PLAY, "--workers", "2", "--config", f"data={table}", "--output-dir", tmp_path / "run")
    assert done.code == 0
    assert (tmp_path / "run" / "report.html").exists()
