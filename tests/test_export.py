"""Training sets out of saved runs."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vlmgym import UsageError
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.evaluation import EpisodeRecord, EvalConfig, RunFolder, read_run
from vlmgym.evaluation.export import ExportConfig, export
from vlmgym.policies import random_response


class Seen:
    """A policy that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, int, int], tuple[list[Any], str, str]] = {}

    def __call__(self, images_batch: list[list[Any]], prompt_batch: list[Any]) -> list[str]:
        responses = []
        for images, prompt in zip(images_batch, prompt_batch):
            response = "<answer>sideways</answer>" if prompt.turn == 3 else random_response(prompt)
            self.asked[prompt.game.id, prompt.seed, prompt.turn + 1] = images, str(prompt), response
            responses.append(response)
        return responses


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen]:
    """Two games, six episodes each, with the images of two earlier turns in the prompts."""
    folder, seen = tmp_path_factory.mktemp("runs") / "run", Seen()
    config = EvalConfig(
        episodes=6,
        max_turns=8,
        size=128,
        workers=0,
        history=3,
        history_images=2,
        videos=0,
        report=False,
        output_dir=folder,
    )
    run_evaluation(["2048", "swap"], config, custom_policy=seen)
    return folder, seen


@pytest.fixture
def exported(played, tmp_path) -> Callable[..., list[dict[str, Any]]]:
    def call(format_: str, run: Path = played[0], **filters: Any) -> list[dict[str, Any]]:
        out = tmp_path / f"export{len(list(tmp_path.iterdir()))}"
        config: Any = {"run": run, "format": format_, "output_dir": out, "workers": 0, **filters}
        export(ExportConfig(**config))
        name = "data.jsonl" if format_ == "sharegpt" else "metadata.jsonl"
        rows = [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]
        assert json.loads((out / "export.json").read_text())["rows"] == len(rows)
        return [row | {"folder": out} for row in rows]

    return call


def row_images(row: dict[str, Any], column: str) -> list[Any]:
    """The images of a row, all of them inside the export."""
    paths = [(row["folder"] / name).resolve() for name in row[column]]
    assert all(path.is_relative_to(row["folder"] / "images") for path in paths)
    return [np.asarray(Image.open(path)) for path in paths]


def key(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["game"], row["seed"], row["turn"]


EVERYTHING = ("played", "illegal", "unparsable")


def test_sharegpt_rows(played, exported):
    rows = exported("sharegpt", outcome=EVERYTHING)
    assert {key(row) for row in rows} == set(played[1].asked)
    for row in rows:
        images, prompt, response = played[1].asked[key(row)]
        assert row["messages"] == [
            {"role": "user", "content": "<image>" * len(images) + prompt},
            {"role": "assistant", "content": response},
        ]
        assert len(images) == min(row["turn"], 3)
        for drawn, seen in zip(row_images(row, "images"), images, strict=True):
            np.testing.assert_array_equal(drawn, seen)


def test_dataset_info_for_llama_factory(exported):
    folder = exported("sharegpt")[0]["folder"]
    info = json.loads((folder / "dataset_info.json").read_text())[folder.name]
    assert info["file_name"] == "data.jsonl"
    assert info["formatting"] == "sharegpt"
    assert info["columns"] == {"messages": "messages", "images": "images"}
    assert info["tags"] == {f"{key}_tag": key for key in ("role", "content", "user", "assistant", "system")}


def test_hf_rows(played, exported):
    rows = exported("hf", outcome=EVERYTHING)
    assert {key(row) for row in rows} == set(played[1].asked)
    for row in rows:
        images, prompt, response = played[1].asked[key(row)]
        user = [*[{"type": "image"}] * len(images), {"type": "text", "text": prompt}]
        assert row["messages"] == [
            {"role": "user", "content": user},
            {"role": "assistant", "content": [{"type": "text", "text": response}]},
        ]
        for drawn, seen in zip(row_images(row, "file_names"), images, strict=True):
            np.testing.assert_array_equal(drawn, seen)


def test_images_are_stored_once(played, exported):
    rows = exported("hf", outcome=EVERYTHING)
    files = [path for path in (rows[0]["folder"] / "images").rglob("*") if path.is_file()]
    distinct = {image.tobytes() for images, _, _ in played[1].asked.values() for image in images}
    assert len(files) == len(distinct) < sum(len(row["file_names"]) for row in rows)
    assert {name for row in rows for name in row["file_names"]} == {
        path.relative_to(rows[0]["folder"]).as_posix() for path in files
    }


def test_export_does_not_depend_on_workers(exported):
    alone, shared = exported("hf"), exported("hf", workers=2)
    assert [row | {"folder": None} for row in alone] == [row | {"folder": None} for row in shared]
    for a, b in zip(alone, shared):
        for name in a["file_names"]:
            assert (a["folder"] / name).read_bytes() == (b["folder"] / name).read_bytes()


def load(to: Path, *args: str, **options: str) -> list[dict[str, Any]]:
    """The rows that `datasets.load_dataset` makes of its arguments, offline; images as names of .npy files.

    It runs in a process of its own, because the library reads where its cache is, and whether it is offline, on import.
    """
    code = (
        "import json, sys, numpy, datasets\n"
        "to, args, options = sys.argv[1], *map(json.loads, sys.argv[2:])\n"
        "rows = []\n"
        "for row in datasets.load_dataset(*args, split='train', **options):\n"
        "    for i, image in enumerate(row['images']):\n"
        "        if not isinstance(image, str):\n"
        "            row['images'][i] = f'{to}/{len(rows)}-{i}.npy'\n"
        "            numpy.save(row['images'][i], numpy.asarray(image))\n"
        "    rows.append(row)\n"
        "print(json.dumps(rows))"
    )
    command = [sys.executable, "-c", code, str(to), json.dumps(args), json.dumps(options)]
    offline = {"HF_HOME": str(to), "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **offline})
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


@pytest.mark.slow
def test_hf_export_loads_as_image_folder(played, exported, tmp_path):
    written = exported("hf", outcome=EVERYTHING)
    rows = load(tmp_path, "imagefolder", data_dir=str(written[0]["folder"]))
    assert {key(row) for row in rows} == set(played[1].asked)
    assert len(rows) == len(written)
    for row in rows:
        images, prompt, response = played[1].asked[key(row)]
        assert [(message["role"], without_nothing(message["content"])) for message in row["messages"]] == [
            ("user", [*[{"type": "image"}] * len(images), {"type": "text", "text": prompt}]),
            ("assistant", [{"type": "text", "text": response}]),
        ]
        for loaded, seen in zip(row["images"], images, strict=True):
            np.testing.assert_array_equal(np.load(loaded), seen)


def without_nothing(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a message without the fields that a table gives all of them."""
    return [{name: value for name, value in part.items() if value is not None} for part in parts]


@pytest.mark.slow
def test_sharegpt_export_loads_as_json(played, exported, tmp_path):
    written = exported("sharegpt", outcome=EVERYTHING)
    rows = load(tmp_path, "json", data_files=str(written[0]["folder"] / "data.jsonl"))
    assert [row | {"folder": written[0]["folder"]} for row in rows] == written
    for row in rows:
        images, _, _ = played[1].asked[key(row)]
        assert len(row["images"]) == row["messages"][0]["content"].count("<image>") == len(images)


def best(run: Path, game: str) -> list[int]:
    episodes = [episode for episode in read_run(run).episodes if episode.game.id == game]
    return [episode.seed for episode in sorted(episodes, key=lambda episode: (-(episode.score or 0), episode.seed))]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [({"top": 2}, 2), ({"top": 99}, 6), ({"top_fraction": 0.5}, 3), ({"top_fraction": 0.51}, 4)],
)
def test_best_episodes_of_each_game(played, exported, filters, kept):
    rows = exported("sharegpt", outcome=EVERYTHING, **filters)
    for game in ("2048-v0", "swap-v0"):
        assert {row["seed"] for row in rows if row["game"] == game} == set(best(played[0], game)[:kept])


def test_minimum_score_and_reward(played, exported):
    scores = {episode.key: episode.score or 0 for episode in read_run(played[0]).episodes}
    least = sorted(score for (game, _), score in scores.items() if game == "2048-v0")[3]
    rows = exported("sharegpt", min_score=least)
    assert {(row["game"], row["seed"]) for row in rows} == {key for key, score in scores.items() if score >= least}
    assert {row["outcome"] for row in rows} == {"played"}
    rows = exported("sharegpt", min_reward=4.0)
    assert min(row["reward"] for row in rows) == 4.0
    assert len(rows) < len(exported("sharegpt"))


def change(run: Path, to: Path, how: Callable[[EpisodeRecord], EpisodeRecord]) -> Path:
    """A copy of a run in which one episode's record is another."""
    to.mkdir()
    (to / "run.json").write_bytes(RunFolder(run).run.read_bytes())
    first, *others = read_run(run).episodes
    lines = [episode.model_dump_json() for episode in (how(first), *others)]
    (to / "episodes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return to


def unfinished(episode: EpisodeRecord) -> EpisodeRecord:
    return episode.model_copy(update={"status": "error", "score": None})


def test_unfinished_episodes_are_optional(played, exported, tmp_path):
    run = change(played[0], tmp_path / "changed", unfinished)
    first = read_run(played[0]).episodes[0].key
    assert first not in {(row["game"], row["seed"]) for row in exported("hf", run=run)}
    rows = exported("hf", run=run, unfinished=True)
    assert {row["score"] for row in rows if (row["game"], row["seed"]) == first} == {None}


@pytest.mark.parametrize(("word", "format_"), [("<image>", "sharegpt"), ("<video>", "hf"), ("<audio>", "hf")])
def test_placeholders_in_responses_are_left_out(played, exported, tmp_path, capsys, word, format_):
    def hostile(episode: EpisodeRecord) -> EpisodeRecord:
        first, *others = episode.turns
        response = f"{word} </script> \x00\x1b[31m \u2028 ../../etc"
        return episode.model_copy(update={"turns": (first.model_copy(update={"response": response}), *others)})

    run = change(played[0], tmp_path / "changed", hostile)
    rows = exported(format_, run=run, outcome=EVERYTHING)
    assert len(rows) == len(played[1].asked) - 1
    assert "contains <image>, <video> or <audio>: 1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"top": 0}, "top .* got 0"),
        ({"top_fraction": 0.0}, "top_fraction .* got 0"),
        ({"top_fraction": float("nan")}, "top_fraction .* got nan"),
        ({"top": 1, "top_fraction": 0.5}, "top and top_fraction"),
        ({"min_score": float("nan")}, "min_score .* got nan"),
        ({"min_reward": float("inf")}, "min_reward .* got inf"),
        ({"unfinished": True, "top": 3}, "unfinished episodes have no score"),
        ({"outcome": ()}, "played, illegal, unparsable"),
        ({"min_score": 1e9}, "no episode"),
        ({"min_reward": 1e9}, "below min_reward: "),
    ],
)
def test_invalid_filters(exported, tmp_path, filters, message: str):
    with pytest.raises(UsageError, match=message):
        exported("hf", **filters)
    assert list(tmp_path.iterdir()) == []


def test_invalid_record_leaves_no_export(played, exported, tmp_path):
    def damaged(episode: EpisodeRecord) -> EpisodeRecord:
        *others, last = episode.turns
        return episode.model_copy(update={"turns": (*others, last.model_copy(update={"state": [1]}))})

    run = change(played[0], tmp_path / "changed", damaged)
    with pytest.raises(UsageError, match=r"line 1 of .*episodes\.jsonl, turn 8: invalid state of 2048"):
        exported("hf", run=run, outcome=EVERYTHING)

    def other(episode: EpisodeRecord) -> EpisodeRecord:
        return episode.model_copy(update={"game": episode.game.model_copy(update={"config": {}})})

    with pytest.raises(UsageError, match=r"line 1 of .*episodes\.jsonl has a game that is not in run\.json"):
        exported("hf", run=change(played[0], tmp_path / "other", other))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["changed", "other"]


def test_one_of_several_failures_is_reported(played, exported, tmp_path, caplog):
    def damaged(episode: EpisodeRecord, times: int) -> EpisodeRecord:
        *others, last = episode.turns * times
        return episode.model_copy(update={"turns": (*others, last.model_copy(update={"state": [1]}))})

    first, *others = read_run(played[0]).episodes
    lines = [damaged(first, 50), *(damaged(episode, 1) for episode in others)]  # the others have failed when it does
    run = tmp_path / "changed"
    run.mkdir()
    (run / "run.json").write_bytes(RunFolder(played[0]).run.read_bytes())
    (run / "episodes.jsonl").write_text("".join(episode.model_dump_json() + "\n" for episode in lines))
    with pytest.raises(UsageError, match="line 1 of"):
        exported("hf", run=run, outcome=EVERYTHING, workers=2)
    gc.collect()  # asyncio tells then of errors that nobody asked for
    assert caplog.messages == []


def test_command_line(played, tmp_path, capsys):
    out = tmp_path / "a, b"
    args = ["export", str(played[0]), "--format", "sharegpt", "--output-dir", str(out), "--workers", "0"]
    main([*args, "--top", "1", "--outcome", "played", "illegal"])
    told = capsys.readouterr().out
    assert "left out episodes: 10" in told
    assert f"load    dataset_dir: {out}, dataset: a__b" in told.replace("\n", "")
    assert "a__b" in json.loads((out / "dataset_info.json").read_text())
    with pytest.raises(SystemExit, match="2"):
        main(args)
    assert f"error: {out} already exists" in capsys.readouterr().err
