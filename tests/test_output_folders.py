"""Commands that write: whatever a user has where they would write is there afterwards, byte for byte."""

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

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import benchmarks.calibration.__main__ as calibration
from training.core.records import begin_rollout_records, write_rollout_records
from training.core.states import PlayConfig
from vlmgym import make_game
from vlmgym.cli.console import reporting_errors
from vlmgym.cli.eval import evaluate_script
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.evaluation import RunFolder, read_run
from vlmgym.policies import ImageArray, Prompt
from vlmgym.records.episode import PolicyRecord
from vlmgym.records.file_list import FileList
from vlmgym.records.files import LineLog, write_own_json
from vlmgym.records.output_folder import MARKER, OutputFolder, new_folder
from vlmgym.records.run_folder import ScriptFolder
from vlmgym.sandbox.core.reward import RewardConfig

PLAY = ["--policy", "random", "--size", "64", "--episodes", "1", "--max-turns", "1", "--workers", "0"]

NAMES = (
    *("run.json", "episodes.jsonl", "summary.json", "report.html", "curves_2048.png", "videos/2048_0.mp4", "videos"),
    *("videos/mine.mp4", "report", "report/0-0.js", "report/.page.part/0.js", "report/0123456789ab/0.js", "notes.txt"),
    *("compare.json", "compare.html", "compare", "data.jsonl", "images/00/x.png", "export.json", "2048.md", "2048.png"),
    *("step_000001.jsonl", "step_000002.jsonl", "gallery.html", "poster.png", MARKER, ".out.part/x", "empty"),
)
"""Places in a folder where commands write, and others."""
BESIDE = (
    *(
        "logs/test_2048.json",
        "logs/test_2048.png",
        "logs",
        "videos",
        "videos/test_2048_0.mp4",
        "videos/test_2048_1.mp4",
    ),
    *(
        "logs/test_2048",
        "logs/test_2048/run.json",
        "logs/test_2048/notes",
        "logs/test_2048/" + MARKER,
        "logs/test_2048.1",
    ),
    *("logs/test_2048.previous", "logs/test_2048.previous/run.json", "logs/test_2048.previous/notes"),
)
"""The same for evaluation scripts, beside which they write."""
THINGS = st.sampled_from(["file", "file", "file", "folder", "link to a file", "link to a folder", "link to nowhere"])


def trees(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(names), THINGS, max_size=5)


def plant(folder: Path, tree: Mapping[str, str]) -> None:
    """Make a user's files where nothing is in the way."""
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
    """All files and links below a folder."""
    found: dict[str, bytes | str] = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def said_by(command: Callable[[], object]) -> tuple[int, str]:
    """Exit code and standard error of a command line."""
    error = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(error):
        try:
            with reporting_errors():
                command()
        except SystemExit as ended:
            return int(ended.code or 0), error.getvalue()
    return 0, error.getvalue()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of other seeds' responses."""
    found = [tmp_path_factory.mktemp("runs") / name for name in ("a", "b")]
    for path, policy in zip(found, ("random", "random-legal")):
        main(["eval", "2048", *PLAY, "--policy", policy, "--output-dir", str(path)])
    return found[0], found[1]


def write_rollouts_of_a_step(out: Path) -> None:
    curriculum = Curriculum.of([make_game("2048", size=64)])
    begin_rollout_records(out, curriculum, PolicyRecord(name="x"), PlayConfig(), RewardConfig(), 1)
    write_rollout_records(out, "step_000001", ["{}"])


def commands(runs: tuple[Path, Path]) -> dict[str, Callable[[Path], object]]:
    """Every command that writes a folder or a file, on the folder where it writes."""
    a, b = map(str, runs)
    return {
        "eval": lambda out: main(["eval", "2048", *PLAY, "--output-dir", str(out)]),
        "resume": lambda out: main(["eval", "2048", *PLAY, "--resume", str(out)]),
        "report": lambda out: main(["report", str(out), "--workers", "0"]),
        "compare": lambda out: main(["compare", a, b, "--workers", "0", "--output-dir", str(out)]),
        "rescore": lambda out: main(["rescore", a, "--output-dir", str(out)]),
        "export": lambda out: main(["export", a, "--format", "hf", "--outcome", "played", "illegal", "unparsable",
                                    "--workers", "0", "--output-dir", str(out)]),
        "calibrate": lambda out: calibration.calibrate_games(
            calibration.CalibrateConfig(game=("2048",), output_dir=out)
        ),
        "gallery": lambda out: main(["gallery", "2048", "--size", "96", "--output", str(out / "gallery.html"),
                                     "--poster", str(out / "poster.png")]),
        "rollouts": write_rollouts_of_a_step,
    }  # fmt: skip


COMMANDS = ("eval", "resume", "report", "compare", "rescore", "export", "calibrate", "gallery", "rollouts")


@pytest.fixture
def quick_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure nothing, but write."""
    monkeypatch.setattr(calibration, "calibrate", lambda *_: None)
    monkeypatch.setattr(calibration, "write_page", lambda *_: "page")
    monkeypatch.setattr(calibration, "draw_plots", lambda *_: b"plots")
    monkeypatch.setattr(calibration, "_verdict", lambda *_: "")


@pytest.mark.parametrize("name", COMMANDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees(NAMES))
def test_no_command_touches_what_a_user_has(
    quick_calibration: None, runs: tuple[Path, Path], name: str, tree: dict[str, str]
) -> None:
    with TemporaryDirectory() as folder:
        out = Path(folder).resolve() / "out"
        out.mkdir()
        plant(out, tree)
        before = contents(out.parent)
        code, error = said_by(partial(commands(runs)[name], out))
        after = contents(out.parent)
        assert {path: after.get(path) for path in before} == before
        if code:
            assert (code, error.count("\n"), error[:7]) == (2, 1, "error: ")
            assert after == before
        elif name not in ("gallery", "rollouts"):  # the others write only into folders without files of others
            assert not [path for path in before if path.startswith("out/")]


@pytest.mark.parametrize("name", ["resume", "report", "compare", "calibrate", "rollouts", "gallery"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees(NAMES))
def test_what_a_user_adds_to_a_folder_of_vlmgym_stays(
    quick_calibration: None, runs: tuple[Path, Path], name: str, tree: dict[str, str]
) -> None:
    with TemporaryDirectory() as folder:
        out = Path(folder).resolve() / "out"
        if name in ("resume", "report"):
            shutil.copytree(runs[0], out)
        else:
            out.mkdir()
            assert said_by(partial(commands(runs)[name], out))[0] == 0
        for path in out.glob("*.html"):
            path.unlink()  # a user may remove files, and put others in their places
        if name not in ("gallery", "rollouts"):
            OutputFolder(out).list.discard("report.html", "compare.html")
        ours = contents(out.parent)
        plant(out, tree)
        planted = {path: data for path, data in contents(out.parent).items() if path not in ours}
        code, error = said_by(partial(commands(runs)[name], out))
        after = contents(out.parent)
        assert {path: after.get(path) for path in planted} == planted
        if code:
            assert (code, error.count("\n"), error[:7]) == (2, 1, "error: ")


@settings(max_examples=40, deadline=None)
@given(before=trees(BESIDE), after=trees(BESIDE), first=st.booleans())
def test_no_script_touches_what_a_user_has_beside_it(
    before: dict[str, str], after: dict[str, str], first: bool
) -> None:
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
            code, error = said_by(play)
            now = contents(beside.parent)
            assert {path: now.get(path) for path in users} == users
            if code:
                refused = 1 if f"{beside}/logs/test_2048: " in error else 2  # no folder can be made there
                assert (code, error.count("\n"), error[:7]) == (refused, 1, "error: ")


def test_the_last_run_of_a_script_is_kept_without_what_a_user_put_beside_it(tmp_path: Path) -> None:
    place = ScriptFolder(tmp_path, "test_2048")
    for text in ("first", "second"):
        place.write(place.run, text.encode())
        (place.folder / "notes").write_text("mine")
        place.make_room()
    kept = {path.parent.name: path.read_text() for path in place.logs.glob("*/run.json")}
    assert kept == {"test_2048.1": "first", "test_2048.2": "second"}
    assert (place.folder / "notes").read_text() == "mine"


def test_the_page_of_a_script_links_the_videos_of_its_own_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, last, kept = (tmp_path / name for name in ("eval_2048.py", "logs/test_2048", "logs/test_2048.previous"))
    video = "../../videos/test_2048_0.mp4"

    def linked(run: Path) -> bool:
        return video in (run / "report.html").read_text()

    evaluate_script(str(script), "2048", _down, args=PLAY)
    assert linked(last)
    main(["report", str(last), "--workers", "0"])
    assert linked(last)
    evaluate_script(str(script), "2048", _down, args=[*PLAY, "--seed", "1"])
    assert not (kept / "report.html").exists()
    main(["report", str(kept), "--workers", "0"])
    assert linked(last)
    assert not linked(kept)
    with pytest.raises(SystemExit):  # before there are results: the videos are still those of the last run
        evaluate_script(str(script), "2048", _fail, args=[arg for arg in PLAY if arg not in ("--policy", "random")])
    main(["report", str(last), "--workers", "0"])
    assert not linked(last)


def _down(images: list[list[ImageArray]], prompts: list[Prompt]) -> list[str]:
    return ["<answer>down</answer>" for _ in prompts]


def _fail(images: list[list[ImageArray]], prompts: list[Prompt]) -> list[str]:
    raise ValueError("no model")


@pytest.mark.parametrize("steps", range(8))
def test_a_move_that_was_killed_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
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
    assert (left < 0) == (steps < 7), "the steps are not those of a move"
    for text in ("second", "third"):
        begin(text)
    logs = tmp_path / "logs"
    kept = {
        folder.name: {(path.name, path.read_text()) for path in folder.iterdir() if path.name[0] != "."}
        for folder in logs.iterdir()
    }
    names = ("run.json", "episodes.jsonl", "summary.json")
    assert kept == {
        folder: {(name, text) for name in names}
        for folder, text in (("test_2048.1", "first"), ("test_2048.2", "second"), ("test_2048", "third"))
    }


@pytest.mark.parametrize(
    "entry", ["../outside", "/outside", "a/../../outside", "link/kept", "", ".", "videos/", "./", 3]
)
def test_a_list_leads_nowhere_else(tmp_path: Path, entry: object) -> None:
    folder = tmp_path / "out"
    (folder / "videos").mkdir(parents=True)
    for path in (tmp_path / "outside", folder / "videos" / "kept"):
        path.write_text("kept")
    (folder / "link").symlink_to(folder / "videos")
    lines = [{"vlmgym": 1, "id": "x"}, {"files": [str(entry).replace("/outside", str(tmp_path / "outside"))
                                                  if entry == "/outside" else entry]}]  # fmt: skip
    (folder / MARKER).write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = contents(tmp_path)
    OutputFolder(folder).remove(folder)
    after = contents(tmp_path)
    assert {path: after[path] for path in before if path != f"out/{MARKER}"} == {
        path: data for path, data in before.items() if path != f"out/{MARKER}"
    }


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=8), max_size=4), st.integers(0, 200))
def test_a_list_that_is_cut_anywhere_names_no_more_files_and_goes_on(names: list[str], cut: int) -> None:
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


def test_a_folder_that_is_being_built_is_not_taken_for_a_run(tmp_path: Path) -> None:
    run = tmp_path / ".x.part"
    main(["eval", "2048", *PLAY, "--videos", "0", "--no-report", "--output-dir", str(run)])
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="not written by vlmgym"), new_folder(tmp_path / "x"):
        pass
    assert contents(tmp_path) == before


def test_what_a_kill_left_of_a_folder_that_was_being_built_is_removed(tmp_path: Path) -> None:
    building = new_folder(tmp_path / "x")
    with building as part:
        (part / "deep").mkdir()
        (part / "deep" / "old").touch()
        shutil.copytree(part, tmp_path / "as it was killed")
    shutil.rmtree(tmp_path / "x")
    (tmp_path / "as it was killed").rename(part)
    with new_folder(tmp_path / "x") as part:
        (part / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "new"]


def test_a_page_is_added_to_a_run_that_was_copied_without_its_list(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "episodes.jsonl"):
        shutil.copy(runs[0] / name, run)
    for _ in range(2):
        main(["report", str(run), "--workers", "0"])
    assert OutputFolder(run).owned() == [run / "report.html"]
    assert len(read_run(run).episodes) == 1


EMPTY = (
    ["eval", "2048", "--output-dir", ""],
    ["eval", "2048", "--resume", ""],
    ["compare", "", ""],
    ["gallery", "--poster", ""],
    ["export", "run", "--format", "hf", "--output-dir", ""],
    ["report", ""],
)


@pytest.mark.parametrize("args", EMPTY)
def test_an_empty_path_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = said_by(partial(main, args))
    assert said == (2, "error: a path must not be empty; use . for the current folder\n")
    assert not list(tmp_path.iterdir())


def test_a_place_that_can_be_no_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for out, code, words in (
        ("file", 2, f"{tmp_path}/file is a file: choose a folder"),
        (".", 2, f"{tmp_path} holds files that vlmgym did not write ('file', 'loop'): choose a new or empty folder"),
        ("/", 2, "/ holds files that vlmgym did not write ("),
        ("loop", 1, f"cannot write {tmp_path}/loop: Too many levels of symbolic links"),
    ):
        said = said_by(partial(main, ["eval", "2048", *PLAY, "--output-dir", out]))
        assert said[0] == code
        assert said[1].startswith(f"error: {words}")
        assert said[1].count("\n") == 1


def test_a_single_file_is_replaced_if_it_says_that_vlmgym_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    for numbers in ({"a": 1}, {"a": 2}):
        write_own_json(path, numbers)
    assert json.loads(path.read_text())["a"] == 2
    path.write_text('{"a": 3}')
    with pytest.raises(UsageError, match=r"numbers\.json exists and was not written by vlmgym"):
        write_own_json(path, {})
    assert path.read_text() == '{"a": 3}'


def test_a_run_folder_is_reserved_through_its_list(tmp_path: Path) -> None:
    place = RunFolder(tmp_path / "run")
    with place.reserved():
        assert [path.name for path in place.folder.iterdir()] == [MARKER]
    assert not list(tmp_path.iterdir())
