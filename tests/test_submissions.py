"""Submissions: packing runs of a suite, and checking folders from untrusted sources."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.suites import FreezeConfig, freeze
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.evaluation.submission.check import check_contents, file_faults
from vlmgym.evaluation.suite import read_suite
from vlmgym.evaluation.summary import updated_summary
from vlmgym.records import packed
from vlmgym.records.episode import DifficultyRecord
from vlmgym.records.run import CurriculumRecord

POLICY = """
from vlmgym.policies import Reply

def right(images, prompts):
    reply = Reply("<answer>true</answer>", prompt_tokens=10, completion_tokens=5, model="/home/someone/models/tiny")
    return [reply for _ in prompts]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Freeze a small suite, play it with a policy in a file, and pack the run."""
    root = tmp_path_factory.mktemp("suite")
    (root / "policy.py").write_text(POLICY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmgym.evaluation.suite.FOLDER", root)
        patch.setattr("benchmarks.suites.FOLDER", root)
        patch.setattr("benchmarks.suites.BUILT_IN", ["nlvr2-v0", "swap-v0"])
        small: Any = {"description": "Small.", "episodes": 3, "max_turns": 4, "baseline_episodes": 20}
        freeze(FreezeConfig(name="small-1", **small))
        read_suite.cache_clear()
        options = ["--videos", "0", "--no-report", "--workers", "0", "--price-in", "1", "--price-out", "2"]
        policy = f"{root / 'policy.py'}:right"
        main(["eval", "--suite", "small-1", "--policy", policy, *options, "--output-dir", str(root / "run")])
        pack(root / "run", root / "packed")
        yield root
    read_suite.cache_clear()


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    return shutil.copytree(root / "packed", tmp_path / "submission")


def pack(run: Path, folder: Path, *options: str) -> None:
    names = ["--submitter", "A laboratory", "--model", "lab/tiny", "--provider", "self-hosted", *options]
    main(["submit", "pack", str(run), "--output-dir", str(folder), "--workers", "0", *names])


def faults(folder: Path) -> list[str]:
    return file_faults(folder) or check_contents(folder, 0).faults


def edit(folder: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the records of a submission."""
    path = folder / "episodes.jsonl.gz"
    records = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    change(records)
    path.write_bytes(b"".join(packed.pack(json.dumps(record).encode() for record in records)))


def edit_json(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))


def edit_text(folder: Path, old: str, new: str) -> None:
    text = (folder / "metadata.toml").read_text()
    assert old in text
    (folder / "metadata.toml").write_text(text.replace(old, new))


def test_a_submission_is_valid_anywhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    main(["submit", "check", ".", "--workers", "0"])
    told = capsys.readouterr().out
    assert len(told.splitlines()) == 1
    assert "lab/tiny (policy.py:right, served as 'tiny') scores" in told
    assert "Proven: the responses of 6 episodes (15 turns) give these scores. Not proven: who wrote" in told
    main(["verify", ".", "--workers", "0"])
    assert "Scoring verified: 6 episodes (15 turns)" in capsys.readouterr().out


def test_records_equal_those_of_the_run_without_paths(root: Path) -> None:
    run, submission = open_run(root / "run"), open_run(root / "packed")
    assert [one.key for one in submission.episodes] == [one.key for one in run.episodes]
    for own, other in zip(submission.read(), run.read(), strict=True):
        assert [turn.response for turn in own.turns] == [turn.response for turn in other.turns]
        assert own.score == other.score
    text = b"".join(path.read_bytes() for path in (root / "packed").iterdir() if path.suffix != ".gz")
    text += gzip.decompress((root / "packed" / "episodes.jsonl.gz").read_bytes())
    assert str(root).encode() not in text
    assert b"/home/" not in text
    assert submission.config.policy.name == "policy.py:right"
    assert submission.last_summary().games["swap-v0"].served_models == {"tiny": 12}


def test_packing_again_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    pack(root / "run", tmp_path / "again")
    for path in (root / "packed").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_metadata_and_summary_state_what_was_measured(folder: Path) -> None:
    text = (folder / "metadata.toml").read_text()
    for line in ('model = "lab/tiny"', 'developer = "lab"', 'provider = "self-hosted"', "cost = 0.0003\n"):
        assert line in text
    suite = json.loads((folder / "summary.json").read_text())["suite"]
    game = suite["games"]["swap-v0"]
    assert game["episodes"] == 3
    assert game["random"] < game["oracle"]
    assert len(game["normalised"]) == len(suite["score"]) == 2


def link(folder: Path) -> None:
    (folder / "run.json").rename(folder.parent / "run.json")
    (folder / "run.json").symlink_to(folder.parent / "run.json")


def compress_at_once(folder: Path) -> None:
    path = folder / "episodes.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())))


def cut(folder: Path) -> None:
    path = folder / "episodes.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-10])


def name_stages(folder: Path) -> None:
    """Give each record a different stage, which hides standard errors: a mean over several stages has none."""
    edit(folder, lambda records: [record.update(stage=str(i)) for i, record in enumerate(records)])
    (folder / "summary.json").write_text(updated_summary(open_run(folder)).model_dump_json())


def repeat(old: str, file: str = "") -> Callable[[Path], None]:
    """Return an edit that repeats a field: some JSON readers take the first value, others the last."""

    def write(folder: Path) -> None:
        if file:
            text = (folder / file).read_text()
            assert old in text
            (folder / file).write_text(text.replace(old, f"{old}: null, {old}", 1))
        else:
            path = folder / "episodes.jsonl.gz"
            first, *others = gzip.decompress(path.read_bytes()).splitlines()
            path.write_bytes(
                b"".join(packed.pack([first.replace(old.encode(), f'{old}: "", {old}'.encode()), *others]))
            )

    return write


def unnoticed_key(records: list[dict[str, Any]]) -> None:
    """Insert a record without a result, which the next record replaces."""
    records.insert(0, {**records[0], "status": "error", "score": None, "end_reason": KEY})


def change_sampling(folder: Path) -> None:
    """Write the same impossible sampling options to all files."""
    edit_json(folder, "run.json", lambda run: run["policy"]["options"].update(temperature="low"))
    edit(folder, lambda records: [record["policy"]["options"].update(temperature="low") for record in records])
    edit_text(folder, "[sampling]", '[sampling]\ntemperature = "low"')


Edit = Callable[[Path], object]


def in_run(**fields: Any) -> Edit:
    return lambda folder: edit_json(folder, "run.json", lambda run: run.update(fields))


def in_summary(change: Callable[[dict[str, Any]], object]) -> Edit:
    return lambda folder: edit_json(folder, "summary.json", change)


def in_metadata(old: str, new: str) -> Edit:
    return lambda folder: edit_text(folder, old, new)


def in_record(**fields: Any) -> Edit:
    return lambda folder: edit(folder, lambda records: records[0].update(fields))


def in_turn(**fields: Any) -> Edit:
    return lambda folder: edit(folder, lambda records: records[0]["turns"][0].update(fields))


KEY = "sk-" + "proj-0123456789abcdefghij"
TAMPERED: dict[str, tuple[Edit, str]] = {
    "response": (in_turn(response="<answer>false</answer>"), "turns.0."),
    "other episode": (in_record(seed=5), "seed 5 with index 0"),
    "stages": (name_stages, "stage is '0', but the replay gives None"),
    "fewer turns": (in_run(max_turns=3), "max_turns is"),
    "no suite": (in_run(suite=None), "names no suite"),
    "private seeds": (in_run(private_salt="0" * 64, seed=5), "has private seeds"),
    "no salt": (in_run(private_salt="none"), "private_salt: string should match"),
    "unknown suite": (in_run(suite="best-1"), "unknown suite 'best-1'"),
    "oracle": (in_summary(lambda s: s["suite"]["games"]["swap-v0"].update(oracle=1)), "swap-v0.oracle is 1"),
    "normalised": (in_summary(lambda s: s["suite"].update(score=[1, 0])), "suite.score.0 is 1"),
    "field of a record twice": (repeat('"response"'), "'response' is repeated"),
    "field of the run twice": (repeat('"suite"', "run.json"), "run.json: 'suite' is repeated"),
    "field of the summary twice": (repeat('"suite"', "summary.json"), "summary.json: 'suite' is repeated"),
    "unknown field": (in_summary(lambda s: s.update(overall=0.99)), "overall is 0.99, but vlmgym reads None"),
    "unknown field of a turn": (in_turn(best_of=8), "turns.0.best_of is 8, but vlmgym reads None"),
    "number as text": (in_summary(lambda s: s.update(seconds="1")), "seconds is '1', but vlmgym reads 1.0"),
    "not a number": (in_record(x=float("nan")), "x is nan, but vlmgym reads"),
    "repeated without a result": (lambda folder: edit(folder, unnoticed_key), "a later record replaces this one"),
    "negative cost": (in_turn(cost=-1), "turns.0.cost"),
    "negative attempt": (in_record(attempt=-1), "attempt: input should be"),
    "huge attempt": (in_record(attempt=10**4000), "attempt: input should be"),
    "impossible sampling": (change_sampling, "sampling: temperature: input should be a valid number"),
    "name of a baseline": (
        in_metadata('model = "lab/tiny"', 'model = "Oracle"'),
        "model is 'Oracle', but the policy of the run is 'policy.py:right'",
    ),
    "name with a letter that looks like another": (
        in_metadata('model = "lab/tiny"', 'model = "\u043epenai/gpt-5"'),
        "model: must be ASCII, so that it cannot look like another name",
    ),
    "date": (in_metadata("date = 2", "date = 1"), "metadata.toml: date is '1"),
    "cost": (in_metadata("cost = 0.0003", "cost = 0.0001"), "cost is 0.0001, but the run has"),
    "sampling": (in_metadata("[sampling]", "[sampling]\ntop_k = 1"), "sampling is {'top_k': 1}"),
    "missing statement": (in_metadata('model = "', 'name = "'), "metadata.toml: model: field req"),
    "unknown statement": (in_metadata('notes = ""', 'note = ""'), "metadata.toml: note: extra"),
    "wrong type": (in_metadata("cost = 0.0003", 'cost = "free"'), "cost: input should be a valid number"),
    "not TOML": (in_metadata("[sampling]", "[sampling"), "metadata.toml is not valid TOML"),
    "key": (in_turn(reasoning=f"Use\n{KEY}"), "line 1 of"),
    "key in notes": (in_metadata('notes = ""', f'notes = "{KEY}"'), "seems to contain an API key"),
    "key in a comment": (in_metadata("[sampling]", f"# {KEY}\n[sampling]"), "seems to contain an API key"),
    "path in a comment": (in_metadata("[sampling]", "# run on /home/me\n[sampling]"), "contains the path"),
    "path with an accent": (in_metadata('notes = ""', 'notes = "/é"'), "metadata.toml contains the path"),
    "path": (in_metadata('notes = ""', "notes = 'on /home/me'"), "metadata.toml contains the path"),
    "path in options": (in_run(options={"data": "/data/x"}), "run.json contains the path"),
    "extra file": (lambda folder: (folder / "notes.txt").touch(), "'notes.txt' does not belong"),
    "missing file": (lambda folder: (folder / "summary.json").unlink(), "summary.json is missing"),
    "link": (link, "run.json is not a regular file"),
    "cut": (cut, "it is incomplete"),
    "one member": (compress_at_once, "must have one gzip member for each record"),
    "not gzip": (lambda folder: (folder / "episodes.jsonl.gz").write_bytes(b"{}\n"), "incorrect header"),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_tampering_is_found(folder: Path, kind: str) -> None:
    change, message = TAMPERED[kind]
    change(folder)
    found = faults(folder)
    assert any(message in fault for fault in found), found


@given(st.data())
def test_everything_that_the_suite_determines_is_compared(root: Path, data: st.DataObject) -> None:
    run = open_run(root / "packed").config
    games = [*run.games, run.games[1].model_copy(update={"config": {**run.games[1].config, "colours": 2}})]
    levels = st.integers(1, 5)
    overrides = st.just(run.difficulty.overrides if run.difficulty else {})
    changed = run.model_copy(
        update={
            "games": data.draw(st.one_of(st.just(run.games), st.lists(st.sampled_from(games), max_size=4).map(tuple))),
            "curriculum": data.draw(st.none() | st.builds(CurriculumRecord, file=st.just({}), episodes=st.just({}))),
            "difficulty": data.draw(
                st.just(run.difficulty)
                | st.builds(DifficultyRecord, perception=levels, reasoning=levels, overrides=overrides)
            ),
            "episodes": data.draw(st.integers(2, 4)),
            "max_turns": data.draw(st.integers(3, 5)),
            "seed": data.draw(st.sampled_from([run.seed, 0])),
        }
    )
    assert (read_suite("small-1").differences(changed) == []) is (changed == run)


def test_names_cannot_add_lines_to_the_proof(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x\nlab/tiny scores 1.000 in small-1. Proven: all\x1b[2J"
    edit_json(folder, "run.json", lambda run: run["policy"].update(name=name))
    edit(folder, lambda records: [record["policy"].update(name=name) for record in records])
    main(["submit", "check", str(folder), "--workers", "0"])
    told = capsys.readouterr().out
    assert len(told.splitlines()) == 1
    assert "\x1b" not in told
    assert "lab/tiny (x lab/tiny scores" in told


def test_several_faults_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_text(folder, "submission = 1", "submission = 2")
    edit_text(folder, 'submitter = "A laboratory"', 'submitter = " "')
    with pytest.raises(SystemExit) as stopped:
        main(["submit", "check", str(folder), "--workers", "0"])
    told = capsys.readouterr()
    assert stopped.value.code == 1
    assert [line.partition(" ")[2].partition(":")[0] for line in told.out.splitlines()] == ["submission", "submitter"]
    assert "is not a valid submission: 2 faults" in told.err


def test_bombs_are_not_unpacked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "episodes.jsonl.gz"
    record = gzip.decompress(path.read_bytes()).splitlines()[0]
    path.write_bytes(gzip.compress(b" " * (packed.MAX_RECORD + 2)))
    assert any("has a record of more than 67,108,864 bytes" in fault for fault in faults(folder))
    path.write_bytes(b"".join(packed.pack([record + b" " * 100_000] * 20)))
    monkeypatch.setattr(packed, "MAX_RECORDS", 1_000_000)
    assert any("or more than 1,000,000 bytes of records" in fault for fault in faults(folder))
    (folder / "run.json").unlink()
    os.truncate(path, 2 << 30)
    assert file_faults(folder) == ["run.json is missing", "episodes.jsonl.gz has more than 1,073,741,824 bytes"]


def test_a_name_in_the_gzip_header_is_found(folder: Path) -> None:
    path = folder / "episodes.jsonl.gz"
    text = path.read_bytes()
    assert text[3] == 0
    path.write_bytes(text[:3] + b"\x08" + text[4:10] + b"../../evil\0" + text[10:])
    assert "the header of a gzip member has a name" in faults(folder)[0]


def test_a_policy_without_a_model_is_not_submitted_as_one(root: Path, tmp_path: Path, capsys: Any) -> None:
    options = ["--videos", "0", "--no-report", "--workers", "0", "--output-dir", str(tmp_path / "run")]
    main(["eval", "--suite", "small-1", "--policy", "oracle", *options])
    with pytest.raises(SystemExit):
        pack(tmp_path / "run", tmp_path / "new")
    assert "model is 'lab/tiny', but the run has 'oracle'" in capsys.readouterr().err
    submit = ["submit", "pack", str(tmp_path / "run"), "--output-dir", str(tmp_path / "new"), "--workers", "0"]
    main([*submit, "--submitter", "me", "--notes", ""])
    edit_text(tmp_path / "new", 'model = "oracle"', 'model = "acme/vlm-1"')
    assert faults(tmp_path / "new") == ["metadata.toml: model is 'acme/vlm-1', but the run has 'oracle'"]


def test_functions_need_a_provider(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "pack", str(root / "run"), "--output-dir", str(tmp_path / "new"), "--submitter", "me"])
    assert "name the service that ran the model with --provider, or self-hosted" in capsys.readouterr().err


def test_folders_of_other_kinds_are_named(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "check", str(root / "run")])
    assert "this is a run folder: make a submission" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", str(folder)])
    assert "is a submission: write its report" in capsys.readouterr().err
    assert faults(folder) == []


@pytest.mark.parametrize(("options", "message"), [(["--cost", "9"], "remove --cost"), (["--model", "a\nb"], "model")])
def test_options_that_contradict_are_rejected(root, options, message, tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        pack(root / "run", tmp_path / "new", *options)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_run_with_faults_is_not_packed(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(root / "run", tmp_path / "run")
    lines = (run / "episodes.jsonl").read_text().splitlines()
    (run / "episodes.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(SystemExit):
        pack(run, tmp_path / "new")
    assert "1 of 3 episodes of swap-v0 have no result" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
