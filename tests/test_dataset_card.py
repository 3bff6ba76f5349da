"""Dataset cards, and datasets on the Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import DatasetCard

import vlmgym
from tests.hub_server import serving_hub
from vlmgym import dataset_card, make_dataset
from vlmgym.runs.record import versions


def card_of(games: Any, **options: Any) -> DatasetCard:
    return DatasetCard(dataset_card({"train": make_dataset(games, 4, 5, size=128, **options)}, seed=5))


def test_the_card_describes_how_rows_were_made() -> None:
    reward = vlmgym.RewardConfig(shaping="log2")
    card = card_of(["2048", "scenes-statements"], reward=reward, max_turns=7, observation="both", chat=True)
    data = card.data.to_dict()
    assert (data["license"], data["task_categories"]) == ("apache-2.0", ["image-text-to-text"])
    assert data["pretty_name"] == "vlmgym: 2048-v0, scenes-statements-v0"
    made = data["vlmgym"]
    assert (made["versions"], made["seed"], made["splits"], made["states"]) == (versions(), 5, {"train": 4}, None)
    assert [used["game"]["id"] for used in made["settings"]] == ["2048-v0", "scenes-statements-v0"]
    for used in made["settings"]:
        assert used["game"]["config"] == vlmgym.make_game(used["game"]["id"], size=128).config.model_dump(mode="json")
        assert vlmgym.RewardConfig(**used["reward"]) == reward
        assert (used["max_turns"], used["prompts"]["observation"], used["prompts"]["chat"]) == (7, "both", True)
    for column in make_dataset("2048", 1)[0]:
        assert f"`{column}`" in card.text
    assert "Sources of images" not in card.text
    assert card_of("2048", observation="text").data.to_dict()["task_categories"] == ["text-generation"]


def test_rows_can_be_made_again_from_the_card() -> None:
    states = vlmgym.StateConfig(moves=(2, 9), mover="oracle", informative=True)
    rows = {
        split: make_dataset(["2048", "swap"], 4, 3, split, states=states, size=128) for split in ("train", "validation")
    }
    made = DatasetCard(dataset_card(rows, seed=3, states=states)).data.to_dict()["vlmgym"]
    games = [vlmgym.make_game(each["game"]["id"], **each["game"]["config"]) for each in made["settings"]]
    for split, count in made["splits"].items():
        again = make_dataset(games, count, made["seed"], split, states=vlmgym.StateConfig(**made["states"]))
        assert [row["snapshot"] for row in again] == [row["snapshot"] for row in rows[split]]


def test_unknown_splits_are_refused() -> None:
    with pytest.raises(vlmgym.UsageError, match="rows must be a mapping from train, validation or both to rows"):
        dataset_card({"test": make_dataset("2048", 1)})


@pytest.mark.parametrize(
    ("game", "source"), [("caption", "photographs of scikit-image"), ("geospot", "GeoNames (CC BY 4.0)")]
)
def test_images_from_elsewhere_are_attributed(game: str, source: str) -> None:
    card = card_of(game)
    assert card.data.to_dict()["license"] == "other"
    assert source in card.text.partition("## Sources of images")[2]


def test_images_of_users_have_their_own_licence() -> None:
    assert vlmgym.make_game("vqa", data="rows.csv").image_source == "data of the author, under its own licence"
    assert vlmgym.make_game("scenes-questions").image_source is None
    digits = vlmgym.make_game("shisensho", tiles="digits")
    assert "CC BY 4.0" in (digits.image_source or "")


PUSH = """  # a program, since the libraries read the environment on import
import json, sys
from huggingface_hub import DatasetCard, create_repo
import datasets, numpy, vlmgym

repo = "me/boards"
create_repo(repo, repo_type="dataset", exist_ok=True)
rows = {split: vlmgym.make_dataset("2048", 3, split=split, size=64) for split in ("train", "validation")}
DatasetCard(vlmgym.dataset_card(rows)).push_to_hub(repo)
for split, own in rows.items():
    vlmgym.to_hf_dataset(own).push_to_hub(repo, split=split)

def plain(row):
    return {**row, "images": [numpy.asarray(image).tobytes() for image in row["images"]]}

loaded = datasets.load_dataset(repo)
assert {*loaded} == {*rows}
for split, own in rows.items():
    assert isinstance(loaded[split].features["images"].feature, datasets.Image)
    assert [*map(plain, loaded[split])] == [*map(plain, own)]
    row = loaded[split][0]
    print(vlmgym.score(row["snapshot"], f"<answer>{row['answer']}</answer>").outcome.value)
vlmgym.to_hf_dataset(rows["train"]).save_to_disk(sys.argv[1])
assert [*map(plain, datasets.load_from_disk(sys.argv[1]))] == [*map(plain, rows["train"])]
print(json.dumps(DatasetCard.load(repo).data.to_dict()))
"""


@pytest.mark.slow
def test_datasets_are_pushed_and_loaded_with_their_card(tmp_path: Path) -> None:
    with serving_hub(tmp_path / "hub") as hub:
        quiet = {"HF_TOKEN": "hf_x", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        environment = {**os.environ, **hub.environment, **quiet}
        command = [sys.executable, "-c", PUSH, str(tmp_path / "disk")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *outcomes, card = done.stdout.splitlines()
    assert outcomes == ["played", "played"]
    data = json.loads(card)
    assert (data["license"], data["vlmgym"]["splits"]) == ("apache-2.0", {"train": 3, "validation": 3})
    (config,) = data["configs"]
    assert [file["split"] for file in config["data_files"]] == ["train", "validation"]
    assert {"name": "answer", "dtype": "string"} in data["dataset_info"]["features"]
