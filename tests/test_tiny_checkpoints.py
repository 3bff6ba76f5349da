"""Tiny checkpoints, which tests/tiny_checkpoints.py makes and runs in .venv-serve."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serving import run_python

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Facts about a checkpoint of each kind, and error messages."""
    found: dict[str, Any] = json.loads(
        run_python("-m", "tests.tiny_checkpoints", str(tmp_path_factory.mktemp("kinds")))
    )
    return found


@pytest.mark.parametrize(
    ("kind", "architecture", "image_tokens"),
    [("qwen2_vl", "Qwen2VL", 25), ("qwen2_5_vl", "Qwen2_5_VL", 25), ("qwen3_vl", "Qwen3VL", 16)],
)
def test_tiny_checkpoint(tiny_checkpoints: dict[str, Any], kind: str, architecture: str, image_tokens: int) -> None:
    facts = tiny_checkpoints["kinds"][kind]
    assert facts["class"] == f"{architecture}ForConditionalGeneration"
    assert facts["parameters"] < 500_000
    assert facts["image tokens"] == image_tokens  # for an image of 128 x 128 pixels
    assert len(facts["generated"]) == 8
    assert facts["response again"] == facts["response"]
    assert facts["response tokens"] < 0.6 * len(facts["response"]), "the tokenizer does not know the words of the games"
    files = facts["files"]
    assert files["same seed"] == files["first"]
    assert {name for name in files["first"] if files["first"][name] != files["other seed"][name]} == {
        "model.safetensors"
    }


def test_checkpoint_that_cannot_be_made(tiny_checkpoints: dict[str, Any]) -> None:
    hidden, vocabulary, folder = tiny_checkpoints["refusals"]
    assert hidden == "hidden must be a multiple of 32, got 50"
    assert vocabulary == "vocabulary must be at least 270, got 100"
    assert "cannot create the folder" in folder
    assert "never" not in tiny_checkpoints["folders"]
