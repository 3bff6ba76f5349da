"""Documented commands for tasks, run with a tiny model.

The commands in docs/real_data.md run on miniature datasets with the layout of the real ones.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.colours import encoded
from tests.hub_server import serving_hub
from tests.in_training.runs import HERE, NO_EPISODES, QUICK, main, read

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "real_data.md").read_text()
RECIPES = (ROOT / "docs" / "training_local.md").read_text().replace("\\\n", "")
REAL_MODEL = "Qwen/Qwen3-VL-4B-Instruct"
COMMAND = ".venv-train/bin/vlmgym "
RUN_ALL = "import shlex, sys; from vlmgym.cli.main import main; [main(shlex.split(line)) for line in sys.stdin]"
"""Runs commands one after another in one process, whose imports take longer than the commands."""
ROWS = {"train": 40, "held out": 8}
PLACES = (("FR", "Île-de-France", "Paris", 48.85, 2.35), ("JP", "Tokyo", "Tokyo", 35.68, 139.69))
OSV5M_COLUMNS = (
    *("id", "latitude", "longitude", "thumb_original_url", "country", "sequence", "captured_at", "lon_bin", "lat_bin"),
    *("cell", "region", "sub-region", "city", "land_cover", "road_index", "drive_side", "climate", "soil", "dist_sea"),
)


def commands(section: str) -> list[str]:
    """Return the commands of a section, each on one line."""
    text = PAGE.split(f"\n## {section}\n")[1].partition("\n## ")[0].replace("\\\n", "")
    return re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)


def write_osv5m(root: Path) -> None:
    """Write the tables, and for each split a zip file with one folder of images."""
    repo = root / "osv5m" / "osv5m"
    for split, first, count in (("train", 100, ROWS["train"]), ("test", 900, ROWS["held out"])):
        (repo / "images" / split).mkdir(parents=True)
        lines = [",".join(OSV5M_COLUMNS)]
        with zipfile.ZipFile(repo / "images" / split / "00.zip", "w") as archive:
            for number in range(first, first + count):
                country, region, city, latitude, longitude = PLACES[number % 2]
                row = {"id": number, "latitude": latitude, "longitude": longitude, "country": country, "city": city}
                row |= {"region": region, "cell": '"(1, 2)"'}
                lines.append(",".join(str(row.get(column, "")) for column in OSV5M_COLUMNS))
                archive.writestr(f"00/{number}.jpg", encoded((number % 256, 0, 0), (80, 60), "JPEG"))
        (repo / f"{split}.csv").write_text("\n".join(lines) + "\n")


def write_parquet(path: Path, rows: list[dict[str, Any]], features: dict[str, Any]) -> None:
    """Write a table as the Hub does, with metadata that marks the image columns and names the classes."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), path)


def image(number: int) -> dict[str, Any]:
    return {"bytes": encoded((number % 256, 99, 0), (64, 48), "JPEG"), "path": f"{number}.jpg"}


def write_nlvr2(root: Path) -> None:
    """Write a repository with a loading script, and its Parquet copy, which has only parts of large splits."""
    (root / "HuggingFaceM4" / "NLVR2").mkdir(parents=True)
    (root / "HuggingFaceM4" / "NLVR2" / "NLVR2.py").write_text("import datasets")
    label = {"names": ["True", "False"], "_type": "ClassLabel"}
    features = {"left_image": {"_type": "Image"}, "right_image": {"_type": "Image"}, "label": label}
    for split, name, count in (("partial-train", "train", ROWS["train"]), ("validation", "dev", ROWS["held out"])):
        rows = [
            {
                "identifier": f"{name}-{n}-0-0",
                "directory": "7",
                "sentence": f"There are {n} dogs.",
                "left_image": image(n),
                "right_image": image(n + 1),
                "label": n % 2,
            }
            for n in range(count)
        ]
        folder = root / "HuggingFaceM4" / "NLVR2@refs_convert_parquet" / "default" / split
        write_parquet(folder / "0000.parquet", rows, features)


def write_textvqa(root: Path) -> None:
    """Write a Parquet file for each split; the test split has no answers."""
    for split, first, count in (("train", 0, ROWS["train"]), ("validation", 500, ROWS["held out"]), ("test", 900, 2)):
        rows = [
            {
                "image_id": f"{n:016x}",
                "question_id": n,
                "question": f"what number is on bus {n}?",
                "question_tokens": ["what"],
                "image": image(n),
                "image_width": 64,
                "image_height": 48,
                "flickr_original_url": "",
                "flickr_300k_url": "",
                "image_classes": ["Bus"],
                "set_name": split,
                "answers": [] if split == "test" else [str(n)] * 7 + ["unanswerable"] * 3,
            }
            for n in range(first, first + count)
        ]
        path = root / "lmms-lab" / "textvqa" / "data" / f"{split}-00000-of-00001.parquet"
        write_parquet(path, rows, {"image": {"_type": "Image"}})


SECTIONS = {"OSV-5M": write_osv5m, "NLVR2": write_nlvr2, "TextVQA": write_textvqa}


@pytest.fixture(scope="module")
def logs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the commands of all sections, and return the folder of their runs."""
    folder, pasted = tmp_path_factory.mktemp("documented"), ""
    stand_ins = {
        " --steps 1500": "",
        " --games ": " --size 96 --games ",
        "--preset 1x80gb": shlex.join(["--preset", str(HERE / "quick.toml"), *NO_EPISODES]),
        "--episodes 500 --max-tokens 1024": f"--episodes {ROWS['held out']} --max-tokens 8 --workers 0",
        REAL_MODEL: str(model),
    }
    for section in SECTIONS:
        *documented, _ = commands(section)  # the last one is for EasyR1
        own = "".join(f"{command.removeprefix(COMMAND)}\n" for command in documented if command.startswith(COMMAND))
        assert own.count("data check ") == 2
        pasted += own
    for part, stand_in in stand_ins.items():
        pasted = pasted.replace(part, stand_in)
    with serving_hub(folder / "hub") as hub:
        for write in SECTIONS.values():
            write(hub.root)
        environment = {**os.environ, **hub.environment, "PYTHONPATH": str(ROOT), "VLMGYM_CACHE": str(folder / "cache")}
        environment.pop("HF_HUB_OFFLINE", None)
        program = [sys.executable, "-c", RUN_ALL]
        done = subprocess.run(
            program, input=pasted, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
    assert done.returncode == 0, f"{pasted}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.count(" 0 bad") == pasted.count("data check ")
    return folder / "logs"


def questions(run: Path, pattern: str) -> list[Any]:
    """Return the states of all first turns in the files of a run."""
    lines = [line for path in run.glob(pattern) for line in path.read_text().splitlines()]
    return [json.loads(line)["turns"][0]["state"] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_documented_commands(logs: Path, section: str) -> None:
    name = section.lower().replace("-", "")
    before, after = (questions(logs / f"{name}-{when}", "episodes.jsonl") for when in ("before", "after"))
    assert before == after
    assert {state["row"]["index"] for state in after} == set(range(ROWS["held out"])), "each row is asked once"
    trained = questions(logs / name / "rollouts", "step_*.jsonl")
    assert len(trained) == 18
    assert {state["row"]["digest"] for state in trained}.isdisjoint(state["row"]["digest"] for state in after)


@pytest.mark.parametrize("game", ["scenes-questions", "caption"])
def test_documented_recipes(model: Path, tmp_path: Path, game: str) -> None:
    (recipe,) = re.findall(rf"vlmgym train (--games {game} (?!.*data=).*)", RECIPES)
    main([*QUICK, *shlex.split(recipe), "--model", str(model), "--output-dir", str(tmp_path / "run")])
    assert read(tmp_path / "run" / "result.json")["total_steps"] == 3


@pytest.mark.parametrize(
    ("name", "more", "warned"), [("three-games", "", False), ("2048", "", False), ("2048", "--max-turns 1", True)]
)
def test_documented_curricula(name: str, more: str, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """With single responses, 2048 cannot leave its first stage, and a warning says so."""
    (recipe,) = re.findall(rf"vlmgym train (--curriculum {name} .*)", RECIPES)
    main([*shlex.split(f"{recipe} {more}"), "--check"])
    said = capsys.readouterr().out
    assert said.endswith("no problems found\n")
    assert ("advances by the score of a single response" in said) == warned
