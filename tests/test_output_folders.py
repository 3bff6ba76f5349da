"""Commands never change the user's files in their output folders."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import benchmarks.calibration.__main__ as calibration
from vlmgym import make_game
from vlmgym.cli.console import reporting_errors
from vlmgym.cli.eval import evaluate_script
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.evaluation import read_run
from vlmgym.pages import gallery
from vlmgym.records.episode import PolicyRecord
from vlmgym.records.file_list import FileList
from vlmgym.records.files import LineLog, write_own_json
from vlmgym.records.output_folder import MARKER, OutputFolder, new_folder
from vlmgym.records.run_folder import ScriptFolder
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.records import begin_rollout_records, write_rollout_records
from vlmgym.training.states import MultiTurnConfig

PLAY = ["--policy", "random", "--size", "64", "--episodes", "1", "--max-turns", "1", "--workers", "0"]

NAMES = (
    "run.json episodes.jsonl summary.json report.html curves_2048.png videos/2048_0.mp4 videos videos/mine.mp4 report "
    "report/0-0.js report/.page.part/0.js report/0123456789ab/0.js notes.txt compare.json compare.html compare "
    "data.jsonl images/00/x.png export.json 2048.md 2048.png step_000001.jsonl step_000002.jsonl gallery.html "
    f"poster.png {MARKER} .out.part/x empty"
).split()
"""Relative paths of files and folders that commands write, and some that they do not."""
BESIDE = (
    "logs/test_2048.json logs/test_2048.png logs videos videos/test_2048_0.mp4 videos/test_2048_1.mp4 logs/test_2048 "
    f"logs/test_2048/run.json logs/test_2048/notes logs/test_2048/{MARKER} logs/test_2048.1 logs/test_2048.previous "
    "logs/test_2048.previous/run.json logs/test_2048.previous/notes"
).split()
"""The same for evaluation scripts, which write to their own folder."""
KINDS = st.sampled_from(["file", "file", "file", "folder", "link to a file", "link to a folder", "link to nowhere"])
QUICK: Any = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def trees(names: list[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(names), KINDS, max_size=5)


def plant(folder: Path, tree: Mapping[str, str]) -> None:
    """Create user files where nothing exists yet."""
    outside = folder.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "kept").write_text("kept")
    for name, kind in tree.items():
        path = folder / name
        if os.path.lexists(path) or not all(parent.is_dir() or not os.path.lexists(parent) for parent in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_text(f"the user's {name}")
        elif kind == "folder":
            path.mkdir()
        else:
            to = {"link to a file": outside / "kept", "link to a folder": outside, "link to nowhere": outside / "none"}
            path.symlink_to(to[kind])


def contents(folder: Path) -> dict[str, bytes | str]:
    """Return all files and links in a folder and its subfolders."""
    found: dict[str, bytes | str] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def result_of(command: Callable[[], object]) -> tuple[int, str]:
    """Run a command; return its exit code and standard error."""
    error = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(error):
        try:
            with reporting_errors():
                command()
        except SystemExit as ended:
            return int(ended.code or 0), error.getvalue()
    return 0, error.getvalue()


def check_refusal(code: int, error: str, expected: int = 2) -> None:
    assert (code, error.count("\n"), error[:7]) == (expected, 1, "error: ")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    found = [tmp_path_factory.mktemp("runs") / name for name in ("a", "b")]
    for path, policy in zip(found, ("random", "random-legal")):
        main(["eval", "2048", *PLAY, "--policy", policy, "--output-dir", str(path)])
    return found


def write_rollouts(out: Path) -> None:
    curriculum = Curriculum.of([make_game("2048", size=64)])
    begin_rollout_records(out, curriculum, PolicyRecord(name="x"), MultiTurnConfig(), RewardConfig(), 1)
    write_rollout_records(out, "step_000001", ["{}"])


def commands(a: Path, b: Path) -> dict[str, Callable[[Path], object]]:
    """Return all commands that write files, as functions of the output folder."""
    outcomes = ["--outcome", "played", "illegal", "unparsable", "--workers", "0"]
    return {
        "eval": lambda out: main(["eval", "2048", *PLAY, "--output-dir", str(out)]),
        "resume": lambda out: main(["eval", "2048", *PLAY, "--resume", str(out)]),
        "report": lambda out: main(["report", str(out), "--workers", "0"]),
        "compare": lambda out: main(["compare", str(a), str(b), "--workers", "0", "--output-dir", str(out)]),
        "rescore": lambda out: main(["rescore", str(a), "--output-dir", str(out)]),
        "export": lambda out: main(["export", str(a), "--format", "hf", *outcomes, "--output-dir", str(out)]),
        "calibrate": lambda out: calibration.calibrate_games(
            calibration.CalibrateConfig(game=("2048",), output_dir=out)
        ),
        "gallery": lambda out: main(
            ["gallery", "2048", "--output", str(out / "gallery.html"), "--poster", str(out / "poster.png")]
        ),
        "rollouts": write_rollouts,
    }


COMMANDS = ("eval", "resume", "report", "compare", "rescore", "export", "calibrate", "gallery", "rollouts")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip slow measurements and drawings; files are still written."""
    for name, result in (("calibrate", None), ("write_page", "page"), ("draw_plots", b"plots"), ("_summary", "")):
        monkeypatch.setattr(calibration, name, lambda *_, result=result: result)
    monkeypatch.setattr(gallery, "render_page", lambda *_: '<meta name="generator" content="vlmgym">')
    monkeypatch.setattr(gallery, "draw_poster", lambda *_: b"tEXtSoftware\0vlmgym")
    monkeypatch.setattr("vlmgym.evaluation.curves.draw_curves", lambda *_: b"curves")


@pytest.mark.parametrize("name", COMMANDS)
@settings(max_examples=8, **QUICK)
@given(tree=trees(NAMES))
def test_commands_keep_user_files(fast, runs, name, tree):
    with TemporaryDirectory() as folder:
        out = Path(folder).resolve() / "out"
        out.mkdir()
        plant(out, tree)
        before = contents(out.parent)
        code, error = result_of(partial(commands(*runs)[name], out))
        after = contents(out.parent)
        assert {path: after.get(path) for path in before} == before
        if code:
            check_refusal(code, error)
            assert after == before
        elif name not in ("gallery", "rollouts"):  # the other commands reject folders with user files
            assert not [path for path in before if path.startswith("out/")]


@pytest.mark.parametrize("name", ["resume", "report", "compare", "calibrate", "rollouts", "gallery"])
@settings(max_examples=6, **QUICK)
@given(tree=trees(NAMES))
def test_files_added_to_an_output_folder_stay(fast, runs, name, tree):
    with TemporaryDirectory() as folder:
        out = Path(folder).resolve() / "out"
        if name in ("resume", "report"):
            shutil.copytree(runs[0], out)
        else:
            out.mkdir()
            assert result_of(partial(commands(*runs)[name], out))[0] == 0
        for path in out.glob("*.html"):
            path.unlink()  # a user may replace our file with another one
        if name not in ("gallery", "rollouts"):
            OutputFolder(out).list.discard("report.html", "compare.html")
        ours = contents(out.parent)
        plant(out, tree)
        planted = {path: data for path, data in contents(out.parent).items() if path not in ours}
        code, error = result_of(partial(commands(*runs)[name], out))
        after = contents(out.parent)
        assert {path: after.get(path) for path in planted} == planted
        if code:
            check_refusal(code, error)


@settings(max_examples=8, **QUICK)
@given(before=trees(BESIDE), after=trees(BESIDE), first=st.booleans())
def test_scripts_keep_files_beside_them(fast, before, after, first):
    with TemporaryDirectory() as folder:
        beside = Path(folder).resolve() / "beside"
        beside.mkdir()
        script = beside / "eval_2048.py"
        script.write_text("the script")
        play = partial(evaluate_script, str(script), "2048", args=[*PLAY, "--no-report"])
        users: dict[str, bytes | str] = {}
        for tree in (before, {}, after) if first else ({}, {}, after):
            ours = contents(beside.parent)
            plant(beside, tree)
            users |= {path: data for path, data in contents(beside.parent).items() if path not in ours}
            code, error = result_of(play)
            now = contents(beside.parent)
            assert {path: now.get(path) for path in users} == users
            if code:  # 1 if the folder cannot be created
                check_refusal(code, error, 1 if f"{beside}/logs/test_2048: " in error else 2)


def test_previous_run_is_moved_without_user_files(tmp_path):
    place = ScriptFolder(tmp_path, "test_2048")
    for text in ("first", "second"):
        place.write(place.run, text.encode())
        (place.folder / "notes").write_text("mine")
        place.make_room()
    kept = {path.parent.name: path.read_text() for path in place.logs.glob("*/run.json")}
    assert kept == {"test_2048.1": "first", "test_2048.2": "second"}
    assert (place.folder / "notes").read_text() == "mine"


def test_report_of_a_script_links_only_videos_of_its_run(tmp_path):
    script, last, kept = (tmp_path / name for name in ("eval_2048.py", "logs/test_2048", "logs/test_2048.previous"))

    def down(images, prompts):
        return ["<answer>down</answer>" for _ in prompts]

    def fail(images, prompts):
        raise ValueError("no model")

    def linked(run: Path) -> bool:
        main(["report", str(run), "--workers", "0"])
        return "../../videos/test_2048_0.mp4" in (run / "report.html").read_text()

    options = [arg for arg in PLAY if arg not in ("--policy", "random")]
    evaluate_script(str(script), "2048", down, args=options)
    assert linked(last)
    evaluate_script(str(script), "2048", down, args=[*options, "--seed", "1"])
    assert not (kept / "report.html").exists()
    assert (linked(last), linked(kept)) == (True, False)
    with pytest.raises(SystemExit):  # fails before it has results, so the videos are still those of the last run
        evaluate_script(str(script), "2048", fail, args=options)
    assert not linked(last)


@pytest.mark.parametrize("steps", range(8))
def test_killed_move_is_completed(tmp_path, monkeypatch, steps):
    def begin(text: str) -> None:
        place = ScriptFolder(tmp_path, "test_2048")
        place.make_room()
        for path in (place.run, place.episodes, place.summary):
            place.write(path, text.encode())

    begin("first")
    left = steps

    def killed_after(done: Callable[..., object]) -> Callable[..., object]:
        def do(*args: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return done(*args)

        return do

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed_after(Path.rename))
        patch.setattr(LineLog, "write", killed_after(LineLog.write))
        ScriptFolder(tmp_path, "test_2048").make_room()
    assert (left < 0) == (steps < 7), "a move has other steps"
    for text in ("second", "third"):
        begin(text)
    kept = sorted((path.parent.name, path.read_text()) for path in tmp_path.glob("logs/*/[!.]*"))
    runs = [("test_2048", "third"), ("test_2048.1", "first"), ("test_2048.2", "second")]
    assert kept == [run for run in runs for _ in range(3)]


@pytest.mark.parametrize(
    "entry", ["../outside", "{tmp_path}/outside", "a/../../outside", "link/kept", "", ".", "videos/", "./", 3]
)
def test_entries_outside_of_the_folder_are_ignored(tmp_path, entry):
    folder = tmp_path / "out"
    (folder / "videos").mkdir(parents=True)
    for path in (tmp_path / "outside", folder / "videos" / "kept"):
        path.write_text("kept")
    (folder / "link").symlink_to(folder / "videos")
    if isinstance(entry, str):
        entry = entry.format(tmp_path=tmp_path)
    lines = [{"vlmgym": 1, "id": "x"}, {"files": [entry]}]
    (folder / MARKER).write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = contents(tmp_path)
    OutputFolder(folder).remove(folder)
    after = contents(tmp_path)
    before[f"out/{MARKER}"] = after[f"out/{MARKER}"]
    assert after == before


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=8), max_size=4), st.integers(0, 200))
@settings(max_examples=50)
def test_truncated_list_names_no_other_files(names, cut):
    with TemporaryDirectory() as folder:
        path = Path(folder) / MARKER
        whole = FileList(path)
        whole.rename("id")
        for name in names:
            whole.add(f"a{name}")
        listed = set(whole.entries())
        data = path.read_bytes()
        path.write_bytes(data[: max(data.index(b"\n") + 1, len(data) - cut)])
        torn = FileList(path)
        assert set(torn.entries()) <= listed
        torn.add("more")
        assert set(FileList(path).entries()) == {*torn.entries()} >= {"more"}


def test_building_a_folder_refuses_a_run_at_its_temporary_path(tmp_path):
    main(["eval", "2048", *PLAY, "--videos", "0", "--no-report", "--output-dir", str(tmp_path / ".x.part")])
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="not written by vlmgym"), new_folder(tmp_path / "x"):
        pass
    assert contents(tmp_path) == before


def test_building_a_folder_removes_leftovers_of_a_kill(tmp_path):
    with new_folder(tmp_path / "x") as part:
        (part / "deep").mkdir()
        (part / "deep" / "old").touch()
        shutil.copytree(part, tmp_path / "killed")
    shutil.rmtree(tmp_path / "x")
    (tmp_path / "killed").rename(part)
    with new_folder(tmp_path / "x") as part:
        (part / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "new"]


def test_report_of_a_run_copied_without_its_list(tmp_path, runs):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "episodes.jsonl"):
        shutil.copy(runs[0] / name, run)
    for _ in range(2):
        main(["report", str(run), "--workers", "0"])
    assert OutputFolder(run).owned() == [run / "report.html"]
    assert len(read_run(run).episodes) == 1


@pytest.mark.parametrize(
    "args", [["eval", "2048", "--resume", ""], ["compare", "", ""], ["gallery", "--poster="], ["report", ""]]
)
def test_empty_path_is_rejected(tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    code, error = result_of(partial(main, args))
    check_refusal(code, error)
    assert "a path must not be empty" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "code", "reason"),
    [
        ("file", 2, "file is a file"),
        (".", 2, "did not write ('file', 'loop')"),
        ("loop", 1, "loop: Too many levels of symbolic links"),
    ],
)
def test_unusable_output_dir(tmp_path, monkeypatch, out, code, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    found, error = result_of(partial(main, ["eval", "2048", *PLAY, "--output-dir", out]))
    check_refusal(found, error, code)
    assert reason in error


def test_single_file_is_replaced_only_if_vlmgym_wrote_it(tmp_path):
    path = tmp_path / "numbers.json"
    for numbers in ({"a": 1}, {"a": "\ud800"}):
        write_own_json(path, numbers)
    assert json.loads(path.read_text())["a"] == "\ud800"
    path.write_text('{"a": 3}')
    with pytest.raises(UsageError, match="not written by vlmgym"):
        write_own_json(path, {})
    assert path.read_text() == '{"a": 3}'
