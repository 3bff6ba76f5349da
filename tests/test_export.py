"""Training data from saved runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from tests.playing import Recording
from vlmgym import UsageError
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.export import ExportConfig, export
from vlmgym.cli.main import main
from vlmgym.evaluation import EvalConfig, RunFolder, read_run

ALL = ("played", "illegal", "unparsable")
FILES = {"sharegpt": ("data.jsonl", "images"), "hf": ("metadata.jsonl", "file_names")}
"""Name of the file with the rows, and of the column with the image file names, by format."""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run of two games with the images of two earlier turns in the prompts; also the policy that played it."""
    folder, policy = tmp_path_factory.mktemp("runs") / "run", Recording(unparsable=4)
    options = {"episodes": 6, "max_turns": 8, "size": 128, "workers": 0, "videos": 0, "report": False}
    config = EvalConfig(history=3, history_images=2, output_dir=folder, **options)
    run_evaluation(["2048", "swap"], config, custom_policy=policy)
    return folder, policy


@pytest.fixture
def exported(played, tmp_path):
    def call(format_, run=played[0], **filters):
        out = tmp_path / f"export{len(list(tmp_path.iterdir()))}"
        export(ExportConfig(**{"run": run, "format": format_, "output_dir": out, "workers": 0, **filters}))
        rows = [json.loads(line) for line in (out / FILES[format_][0]).read_text(encoding="utf-8").splitlines()]
        assert json.loads((out / "export.json").read_text())["rows"] == len(rows)
        return [row | {"folder": out} for row in rows]

    return call


def key(row):
    return row["game"], row["seed"], row["turn"]


def messages(format_, prompt, response):
    if format_ == "sharegpt":
        user, assistant = "<image>" * len(prompt.images) + prompt, response
    else:
        user = [*[{"type": "image"}] * len(prompt.images), {"type": "text", "text": prompt}]
        assistant = [{"type": "text", "text": response}]
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


@pytest.mark.parametrize("format_", FILES)
def test_rows_are_the_turns(played, exported, format_):
    rows = exported(format_, outcome=ALL, workers=2 if format_ == "hf" else 0)
    assert {key(row) for row in rows} == set(played[1].calls)
    files = set()
    for row in rows:
        prompt, response = played[1].calls[key(row)]
        assert row["messages"] == messages(format_, prompt, response)
        paths = [(row["folder"] / name).resolve() for name in row[FILES[format_][1]]]
        assert all(path.is_relative_to(row["folder"] / "images") for path in paths)
        assert len(paths) == min(row["turn"], 3)
        for path, seen in zip(paths, prompt.images, strict=True):
            np.testing.assert_array_equal(np.asarray(Image.open(path)), seen)
        files.update(paths)
    assert files == {path for path in (rows[0]["folder"] / "images").rglob("*") if path.is_file()}
    assert len(files) == len({image.tobytes() for prompt, _ in played[1].calls.values() for image in prompt.images})
    episodes = {episode.key: episode for episode in read_run(played[0]).episodes}
    for row in rows:
        turn = episodes[row["game"], row["seed"]].turns[row["turn"] - 1]
        assert (row["outcome"], row["reward"]) == (turn.outcome.value, turn.reward.total)


@pytest.mark.slow
def test_hf_export_loads_as_image_folder(played, exported, tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = exported("hf", outcome=ALL)[0]["folder"]
    cache = str(tmp_path / "cache")
    rows = [*datasets.load_dataset("imagefolder", split="train", data_dir=str(folder), cache_dir=cache)]
    assert sorted(map(key, rows)) == sorted(played[1].calls)
    for row in rows:
        prompt, response = played[1].calls[key(row)]
        for message in row["messages"]:  # in a table, every part has all fields
            message["content"] = [{k: v for k, v in part.items() if v is not None} for part in message["content"]]
        assert row["messages"] == messages("hf", prompt, response)
        for image, seen in zip(row["images"], prompt.images, strict=True):
            np.testing.assert_array_equal(np.asarray(image), seen)


def best(run, game):
    episodes = [episode for episode in read_run(run).episodes if episode.game.id == game]
    return [episode.seed for episode in sorted(episodes, key=lambda episode: (-(episode.score or 0), episode.seed))]


@pytest.mark.parametrize(("fraction", "kept"), [(0.01, 1), (0.5, 3), (0.51, 4), (1.0, 6)])
def test_best_episodes_of_each_game(played, exported, fraction, kept):
    rows = exported("sharegpt", outcome=ALL, top_fraction=fraction)
    for game in ("2048-v0", "swap-v0"):
        assert {row["seed"] for row in rows if row["game"] == game} == set(best(played[0], game)[:kept])


def change(run, to, how):
    """Copy the run to `to` and change the record of its first episode with `how`; return `to`."""
    to.mkdir()
    (to / "run.json").write_bytes(RunFolder(run).run.read_bytes())
    first, *others = read_run(run).episodes
    lines = [episode.model_dump_json() for episode in (how(first), *others)]
    (to / "episodes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return to


def test_unfinished_episodes_are_left_out(played, exported, tmp_path):
    run = change(played[0], tmp_path / "changed", lambda one: one.model_copy(update={"status": "error", "score": None}))
    first = read_run(played[0]).episodes[0].key
    assert first not in {(row["game"], row["seed"]) for row in exported("hf", run=run)}


@pytest.mark.parametrize(("word", "format_"), [("<image>", "sharegpt"), ("<video>", "hf"), ("<audio>", "hf")])
def test_placeholders_in_responses_are_left_out(played, exported, tmp_path, capsys, word, format_):
    def hostile(episode):
        first, *others = episode.turns
        response = f"{word} </script> \x00\x1b[31m \u2028 ../../etc"
        return episode.model_copy(update={"turns": (first.model_copy(update={"response": response}), *others)})

    run = change(played[0], tmp_path / "changed", hostile)
    rows = exported(format_, run=run, outcome=ALL)
    assert len(rows) == len(played[1].calls) - 1
    assert "contains <image>, <video> or <audio>: 1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("filters", "message"),
    [({"top_fraction": 2.0}, "top_fraction .* got 2"), ({"outcome": ()}, "no turn of .* passes the filters: ")],
)
def test_invalid_filters(exported, tmp_path, filters, message: str):
    with pytest.raises(UsageError, match=message):
        exported("hf", **filters)
    assert list(tmp_path.iterdir()) == []


def test_command_line(played, tmp_path, capsys):
    out = tmp_path / "a, b"
    args = ["export", str(played[0]), "--format", "sharegpt", "--output-dir", str(out), "--workers", "0"]
    main([*args, "--top-fraction", "0.1", "--outcome", "played", "illegal"])
    printed = capsys.readouterr().out
    assert "left out episodes: 10" in printed
    assert f"load    dataset_dir: {out}, dataset: a__b" in printed.replace("\n", "")
    assert "a__b" in json.loads((out / "dataset_info.json").read_text())
    with pytest.raises(SystemExit, match="2"):
        main(args)
    assert f"error: {out} has files (" in capsys.readouterr().err
