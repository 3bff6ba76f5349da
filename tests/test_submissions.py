"""Submissions: packing runs of a suite, and checking folders that come from anyone."""

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
from vlmgym.errors import UsageError
from vlmgym.evaluation import open_run
from vlmgym.evaluation.submission.check import SECRETS, check_contents, file_faults
from vlmgym.evaluation.submission.pack import without_folders
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


def raise_score(records: list[dict[str, Any]]) -> None:
    records[-1]["turns"][0]["reward"].update(game=40, total=40)
    records[-1]["score"] = sum(turn["reward"]["game"] for turn in records[-1]["turns"])


def add_game(run: dict[str, Any]) -> None:
    """Insert an easier game before the one of the suite."""
    game = run["games"][1]
    run["games"].insert(0, {**game, "config": {**game["config"], "colours": 2}})


def name_stages(folder: Path) -> None:
    """Hide the errors of means: a mean over several stages has none."""
    edit(folder, lambda records: [record.update(stage=str(i)) for i, record in enumerate(records)])
    (folder / "summary.json").write_text(updated_summary(open_run(folder)).model_dump_json())


KEY = "sk-" + "proj-0123456789abcdefghij"
TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "response": (
        lambda folder: edit(folder, lambda r: r[0]["turns"][0].update(response="<answer>false</answer>")),
        "turns.0.",
    ),
    "score": (lambda folder: edit(folder, raise_score), "turns.0.reward"),
    "episode dropped": (lambda folder: edit(folder, lambda r: r.pop()), "1 of 3 episodes of swap-v0 have no result"),
    "second try": (lambda folder: edit(folder, lambda r: r.append(r[0])), "was replaced"),
    "other episode": (lambda folder: edit(folder, lambda r: r[0].update(seed=5)), "seed 5 with index 0"),
    "easier game": (
        lambda folder: edit_json(folder, "run.json", lambda run: run["games"][1]["config"].update(colours=2)),
        "not those of the suite",
    ),
    "another easier game": (lambda folder: edit_json(folder, "run.json", add_game), "not those of the suite"),
    "fewer episodes": (
        lambda folder: edit_json(
            folder,
            "run.json",
            lambda run: run.update(difficulty=None, curriculum={"file": {}, "episodes": {"swap-v0": 1}}),
        ),
        "curriculum is",
    ),
    "difficulty": (
        lambda folder: edit_json(folder, "run.json", lambda run: run.update(difficulty=None)),
        "the difficulty is not that of the suite",
    ),
    "stages": (name_stages, "stage is '0', but the replay gives None"),
    "fewer turns": (lambda folder: edit_json(folder, "run.json", lambda run: run.update(max_turns=3)), "max_turns is"),
    "no suite": (lambda folder: edit_json(folder, "run.json", lambda run: run.update(suite=None)), "names no suite"),
    "private seeds": (
        lambda folder: edit_json(folder, "run.json", lambda run: run.update(private_salt="0" * 64, seed=5)),
        "has private seeds",
    ),
    "no salt": (
        lambda folder: edit_json(folder, "run.json", lambda run: run.update(private_salt="none")),
        "private_salt: string should match",
    ),
    "unknown suite": (
        lambda folder: edit_json(folder, "run.json", lambda run: run.update(suite="best-1")),
        "unknown suite 'best-1'",
    ),
    "mean": (
        lambda folder: edit_json(folder, "summary.json", lambda s: s["games"]["swap-v0"].update(score_mean=9)),
        "games.swap-v0.score_mean is 9",
    ),
    "oracle": (
        lambda folder: edit_json(folder, "summary.json", lambda s: s["suite"]["games"]["swap-v0"].update(oracle=1)),
        "suite.games.swap-v0.oracle is 1",
    ),
    "normalised": (
        lambda folder: edit_json(folder, "summary.json", lambda s: s["suite"].update(score=[1, 0])),
        "suite.score.0 is 1",
    ),
    "date": (lambda folder: edit_text(folder, "date = 2", "date = 1"), "metadata.toml: date is '1"),
    "cost": (lambda folder: edit_text(folder, "cost = 0.0003", "cost = 0.0001"), "cost is 0.0001, but the run has"),
    "sampling": (lambda folder: edit_text(folder, "[sampling]", "[sampling]\ntop_k = 1"), "sampling is {'top_k': 1}"),
    "missing field": (lambda folder: edit_text(folder, 'model = "', 'name = "'), "metadata.toml: model: field req"),
    "unknown field": (lambda folder: edit_text(folder, 'notes = ""', 'note = ""'), "metadata.toml: note: extra"),
    "wrong type": (
        lambda folder: edit_text(folder, "cost = 0.0003", 'cost = "free"'),
        "cost: input should be a valid number",
    ),
    "not TOML": (lambda folder: edit_text(folder, "[sampling]", "[sampling"), "metadata.toml is not valid TOML"),
    "key": (
        lambda folder: edit(folder, lambda r: r[0]["turns"][0].update(reasoning=f"Use\n{KEY}")),
        "line 1 of",
    ),
    "key in notes": (lambda folder: edit_text(folder, 'notes = ""', f'notes = "{KEY}"'), "seems to contain an API key"),
    "key in a comment": (
        lambda folder: edit_text(folder, "[sampling]", f"# {KEY}\n[sampling]"),
        "metadata.toml seems to contain an API key",
    ),
    "path in a comment": (
        lambda folder: edit_text(folder, "[sampling]", "# run on /home/me\n[sampling]"),
        "metadata.toml contains the path",
    ),
    "path with an accent": (
        lambda folder: edit_text(folder, 'notes = ""', 'notes = "/é"'),
        "metadata.toml contains the path",
    ),
    "path": (
        lambda folder: edit_text(folder, 'notes = ""', "notes = 'on /home/me'"),
        "metadata.toml contains the path",
    ),
    "path in options": (
        lambda folder: edit_json(folder, "run.json", lambda run: run["options"].update(data="/data/x")),
        "run.json contains the path",
    ),
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
    assert any("or 1,000,000 bytes of them" in fault for fault in faults(folder))
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
    main([*submit, "--submitter", "me"])
    edit_text(tmp_path / "new", 'model = "oracle"', 'model = "acme/vlm-1"')
    assert faults(tmp_path / "new") == ["metadata.toml: model is 'acme/vlm-1', but the run has 'oracle'"]


def test_functions_need_a_provider(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "pack", str(root / "run"), "--output-dir", str(tmp_path / "new"), "--submitter", "me"])
    assert "name the service that ran the model with --provider, or self-hosted" in capsys.readouterr().err


def test_names_of_local_folders_are_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints" / "2048").mkdir(parents=True)
    (tmp_path / "checkpoints" / "policy.py").touch()
    paths = ["/data/tiny/", "/tiny", "~/tiny", r"C:\models\tiny", "../secret/tiny", "./tiny"]
    assert [*map(without_folders, paths)] == ["tiny"] * 6
    assert without_folders("checkpoints/2048") == "2048"
    assert without_folders("checkpoints/policy.py:play") == "policy.py:play"
    assert without_folders("Qwen/Qwen2.5-VL-3B-Instruct") == "Qwen/Qwen2.5-VL-3B-Instruct"


def test_folders_of_other_kinds_are_named(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["submit", "check", str(root / "run")])
    assert "this is a run folder: make a submission" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", str(folder)])
    assert "is a submission: write its report" in capsys.readouterr().err
    assert faults(folder) == []


@pytest.mark.parametrize("start", ["sk-", "gsk_", "xai-", "nvapi-", "r8_", "pplx-", "fw_"])
def test_keys_of_common_services_are_found(start: str) -> None:
    key = (start + "0123456789abcdefghij").encode()
    assert SECRETS.search(b"token " + key)
    assert not SECRETS.search(b"x" + key)


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


def test_damaged_members_are_named(tmp_path: Path) -> None:
    (tmp_path / "records.gz").write_bytes(b"".join(packed.pack([b"{}"])) + b"rest")
    with pytest.raises(UsageError, match="incorrect header"):
        list(packed.packed_records(tmp_path / "records.gz"))
