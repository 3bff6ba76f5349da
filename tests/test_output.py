"""Files of a run, and its folder: commands write only to folders with run.json, or to new or empty ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import imageio.v3 as imageio
import numpy as np
import pytest

import vlmgym
from tests.commands import Done, policy_file, process, wait_until
from vlmgym.cli.eval import evaluate_script
from vlmgym.cli.main import main
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate, read_run
from vlmgym.evaluation.curves import draw_curves
from vlmgym.evaluation.video import write_video
from vlmgym.runs.files import LineLog, OutputError, new_folder, output_folder, replace_folder, write_own_json
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import drop_torn_line, find_episodes

GAME = vlmgym.make_game("2048", size=160, reasoning=5)


@pytest.fixture(scope="module")
def episodes():
    return evaluate(GAME, "random", 3, max_turns=60, workers=0)


def read_lines(path):
    """Return the records in a JSON Lines file, and whether its last line is truncated."""
    found, torn = find_episodes(path)
    return [episode.read() for episode in found], torn


def frames(path):
    facts = imageio.immeta(path, plugin="FFMPEG")
    capture, images = cv2.VideoCapture(str(path)), []
    while (frame := capture.read())[0]:
        images.append(cv2.cvtColor(frame[1], cv2.COLOR_BGR2RGB))
    return (facts["codec"], facts["pix_fmt"], facts["fps"]), images


def test_video_shows_every_turn_and_plays_in_browsers(tmp_path, episodes):
    path = tmp_path / "episode.mp4"
    write_video(path, GAME, episodes[0])
    facts, images = frames(path)
    assert facts == ("h264", "yuv420p(progressive)", 4)
    assert len(images) == len(episodes[0].turns) + 4  # plus the first state, and one second of the last one
    board = GAME.draw(GAME.from_json(json.dumps(episodes[0].turns[7].state)))
    shown = images[7][: board.shape[0], : board.shape[1]]
    assert np.abs(shown.astype(int) - board).mean() < 8
    strips = [image[GAME.config.size :] for image in images[: len(episodes[0].turns)]]
    assert all(np.abs(a.astype(int) - b).max() > 60 for a, b in pairwise(strips))
    # With `moov` before `mdat`, a browser can start playing before it has the whole file.
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


@pytest.mark.parametrize("count", [1, 15])
def test_curves_are_a_reproducible_png(episodes, count):
    png = draw_curves((episodes * 5)[:count])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert draw_curves((episodes * 5)[:count]) == png


@pytest.fixture
def log(tmp_path, episodes):
    path = tmp_path / "episodes.jsonl"
    with LineLog(path) as lines:
        for episode in episodes:
            lines.write(episode.model_dump_json())
    return path


@pytest.mark.parametrize("cut", [2, 1000, None])
def test_torn_last_line_is_dropped(log, episodes, cut):
    data = log.read_bytes()
    last = data.splitlines(keepends=True)[-1]
    log.write_bytes(data[: -len(last)] + (last[:-cut] if cut else b"\0" * (len(last) - 1) + b"\n"))
    assert read_lines(log) == (episodes[:-1], True)
    drop_torn_line(log)
    assert read_lines(log) == (episodes[:-1], False)
    with LineLog(log) as lines:
        lines.write(episodes[-1].model_dump_json())
    assert log.read_bytes() == data


PLAY = ["--policy", "random", "--size", "64", "--episodes", "1", "--max-turns", "1", "--workers", "0"]
DOWN = ["--size", "64", "--episodes", "2", "--max-turns", "2", "--workers", "0"]
NOWHERE = ["--policy", "openai", "--model", "m", "--base-url", "http://localhost:9/v1"]

Command = Callable[..., Done]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp("runs") / name for name in ("a", "b")]
    for path, policy in zip(folders, ("random", "random-legal")):
        main(["eval", "2048", *PLAY, "--policy", policy, "--output-dir", str(path)])
    return folders


@pytest.fixture
def played(runs: list[Path], tmp_path: Path) -> Path:
    return shutil.copytree(runs[0], tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes | str]:
    """Return all files and links in a folder and its subfolders."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def commands(runs: list[Path], out: Path) -> dict[str, list[object]]:
    a, b = runs
    return {
        "eval": ["eval", "2048", *PLAY, "--output-dir", out],
        "resume": ["eval", "2048", *PLAY, "--resume", out],
        "report": ["report", out, "--workers", "0"],
        "compare": ["compare", a, b, "--workers", "0", "--output-dir", out],
        "rescore": ["rescore", a, "--output-dir", out],
        "export": ["export", a, "--format", "hf", "--outcome", "played", "illegal", "--workers", "0"]
        + ["--output-dir", out],
    }


@pytest.mark.parametrize("name", commands([Path(), Path()], Path()))
@pytest.mark.parametrize("file", ["notes.txt", "run.json"])
def test_folders_with_other_files_are_refused(
    runs: list[Path], tmp_path: Path, run: Command, name: str, file: str
) -> None:
    path = tmp_path / "out" / file
    path.parent.mkdir(parents=True)
    path.write_text("the user's")
    before = contents(tmp_path)
    done = run(*commands(runs, tmp_path / "out")[name])
    assert (done.code, done.err_lines, done.err[:7]) == (2, 1, "error: "), done
    assert contents(tmp_path) == before
    assert path.exists()


@pytest.mark.parametrize("name", ["resume", "report"])
def test_files_added_to_a_run_stay(runs: list[Path], played: Path, run: Command, name: str) -> None:
    added = {"notes.txt": b"mine", "videos/mine.mp4": b"mine", "report/notes.txt": b"mine", ".hidden": b"mine"}
    for file, data in added.items():
        (played / file).parent.mkdir(exist_ok=True)
        (played / file).write_bytes(data)
    assert run(*commands(runs, played)[name]).code == 0
    assert contents(played).items() >= added.items()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("resume", "run.json"),
        ("report", "episodes.jsonl"),
        ("verify", "summary.json"),
        ("report", "report.html"),
        ("resume", "videos"),
    ],
)
def test_links_in_a_run_are_not_followed(runs: list[Path], played: Path, run: Command, name: str, file: str) -> None:
    outside = played.with_name("outside")
    if (played / file).exists():
        (played / file).rename(outside)
    else:
        outside.mkdir()
    (played / file).symlink_to(outside)
    before = contents(played.parent)
    command = commands(runs, played) | {"verify": ["verify", played, "--workers", "0"]}
    done = run(*command[name])
    assert (done.code, done.err_lines) == (2, 1)
    assert f"{file} must be an ordinary file in the folder of the run, not a link or a pipe" in done.err
    assert contents(played.parent) == before


def test_a_copied_run_resumes(played: Path, run: Command, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("run.json", "episodes.jsonl"):
        shutil.copy(played / name, copy)
    assert run("eval", "2048", *PLAY, "--episodes", "2", "--resume", copy).code == 0
    assert len(read_run(copy).episodes) == 2
    assert {path.name for path in copy.iterdir()} == {path.name for path in played.iterdir()}


@pytest.mark.parametrize("exists", [False, True])
def test_a_start_that_played_nothing_leaves_nothing(
    tmp_path: Path, run: Command, exists: bool, quick_retries: None
) -> None:
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    else:
        assert run("eval", "2048", *DOWN, *NOWHERE).code == 1  # the default is a new folder in logs
    done = run("eval", "2048", *DOWN, *NOWHERE, "--output-dir", out)
    assert done.code == 1
    assert "--resume" not in done.err
    assert "localhost:9" in done.err
    assert [*tmp_path.iterdir()] == ([out] if exists else [])
    assert not contents(tmp_path)
    assert run("eval", "2048", *PLAY, "--output-dir", out).code == 0


def test_a_killed_start_can_be_corrected(tmp_path: Path, run: Command) -> None:
    out = tmp_path / "out"
    policy = policy_file(tmp_path, "open('started', 'w').close(); time.sleep(600)")
    started = process("eval", "2048", *DOWN, "--policy", policy, "--output-dir", out, cwd=tmp_path)
    wait_until((tmp_path / "started").exists)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert (out / "run.json").exists()
    assert run("eval", "2048", *PLAY, "--output-dir", out).code == 0
    assert [record.policy.name for record in read_run(out).episodes] == ["random"]


def test_a_run_is_not_overwritten(played: Path, run: Command) -> None:
    before = contents(played)
    done = run("eval", "2048", *PLAY, "--output-dir", played)
    assert (done.code, "already contains a run: --resume it" in done.err) == (2, True)
    assert contents(played) == before


# Scripts --------------------------------------------------------------------------------------------------------------


def down(images: Any, prompts: Any) -> list[str]:
    return ["<answer>down</answer>" for _ in prompts]


def fail(images: Any, prompts: Any) -> list[str]:
    raise ValueError("no model")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "eval_2048.py"


def test_scripts_keep_earlier_runs_and_copy_the_results_of_the_last(script: Path) -> None:
    logs, videos = script.parent / "logs", script.parent / "videos"
    videos.mkdir()
    (videos / "test_2048_images_0.mp4").touch()  # of eval_2048_images.py
    for seed in range(3):
        evaluate_script(str(script), "2048", down, args=[*DOWN, "--seed", str(seed), "--videos", str(3 - seed)])
        if not seed:
            (logs / "test_2048" / "notes.txt").write_text("mine")
    assert sorted(path.name for path in logs.glob("test_2048*")) == [
        *("test_2048", "test_2048.1", "test_2048.2", "test_2048.json", "test_2048.png")
    ]
    assert [read_run(logs / f"test_2048{name}").config.seed for name in (".1", ".2", "")] == [0, 1, 2]
    assert (logs / "test_2048.1" / "notes.txt").read_text() == "mine"
    document = json.loads((logs / "test_2048.json").read_text())
    assert [episode["seed"] for episode in document["episodes"]] == [2, 3]
    assert (logs / "test_2048.png").read_bytes() == (logs / "test_2048" / "curves_2048.png").read_bytes()
    assert {path.name for path in videos.iterdir()} == {"test_2048_0.mp4", "test_2048_images_0.mp4"}
    assert len([*(logs / "test_2048.1").glob("videos/*")]) == 2
    assert "videos/2048_0.mp4" in (logs / "test_2048.1" / "report.html").read_text()


def test_a_script_that_played_nothing_changes_nothing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate_script(str(script), "2048", down, args=DOWN)
    before = contents(script.parent)
    with pytest.raises(SystemExit):
        evaluate_script(str(script), "2048", fail, args=DOWN)
    assert contents(script.parent) == before


@pytest.mark.parametrize("file", ["logs/test_2048.json", "logs/test_2048.png", "videos/test_2048_0.mp4"])
def test_scripts_do_not_replace_files_of_the_user(script: Path, capsys: pytest.CaptureFixture[str], file: str) -> None:
    (script.parent / file).parent.mkdir()
    (script.parent / file).write_text("mine")
    with pytest.raises(SystemExit) as ended:
        evaluate_script(str(script), "2048", down, args=DOWN)
    assert ended.value.code == 2
    assert f"{file} exists, but no run" in capsys.readouterr().err
    assert contents(script.parent) == {file: b"mine"}


# Files and folders ----------------------------------------------------------------------------------------------------


def test_an_output_folder_is_reserved_for_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with output_folder(folder), pytest.raises(OutputError, match="another run is writing"), output_folder(folder):
        pass
    with RunFolder(folder).reserved():
        (folder / "run.json").touch()
    with RunFolder(folder).reserved():
        pass
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    (folder / "run.json").unlink()
    with output_folder(folder):
        pass
    assert folder.exists()  # it was there before


@pytest.mark.parametrize("make", [new_folder, replace_folder])
def test_folders_appear_whole(tmp_path: Path, make: Callable[[Path], object]) -> None:
    with suppress(ValueError), make(tmp_path / "x") as part:  # type: ignore[attr-defined]
        (part / "deep").mkdir()
        raise ValueError
    assert not [*tmp_path.iterdir()]
    with make(tmp_path / "x") as part:  # type: ignore[attr-defined]
        (part / "old").touch()
        assert not (tmp_path / "x").exists()
    with replace_folder(tmp_path / "x") as part:
        (part / "new").touch()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["x", "x/new"]
    with pytest.raises(UsageError, match=r"x has files \('new'\)"), new_folder(tmp_path / "x"):
        pass


@pytest.mark.parametrize(
    ("out", "code", "reason"),
    [
        ("file", 2, "file is a file"),
        (".", 2, "has files but no run.json ('file', 'loop')"),
        ("loop", 1, "loop: Too many levels of symbolic links"),
        ("file/run", 1, "file/run: Not a directory"),
    ],
)
def test_unusable_output_dir(tmp_path: Path, run: Command, out: str, code: int, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    done = run("eval", "2048", *PLAY, "--output-dir", out)
    assert (done.code, done.err_lines) == (code, 1)
    assert reason in done.err


def test_single_file_is_replaced_only_if_vlmgym_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    for numbers in ({"a": 1}, {"a": "\ud800"}):
        write_own_json(path, numbers)
    assert json.loads(path.read_text())["a"] == "\ud800"
    path.write_text('{"a": 3}')
    with pytest.raises(UsageError, match="not written by vlmgym"):
        write_own_json(path, {})
    assert path.read_text() == '{"a": 3}'
